// Goal: what is measured is kept for this machine and disk alone, with checksums, and predicts the
// operations that it was measured on.
import {
  chmodSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  watch,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { open } from 'lmdb';
import { afterAll, describe, expect, it } from 'vitest';
import { readModelDefinition } from '../../src/checkpoint/read-model-definition.js';
import { emptyBatch } from '../../src/data/example-batch.js';
import { calibrate } from '../../src/engine/calibrate/calibrate.js';
import { CostStore, knownCosts, type CostKeys } from '../../src/engine/calibrate/cost-store.js';
import { costsOf, type DiskRate } from '../../src/engine/calibrate/measure-disk.js';
import { median } from '../../src/engine/calibrate/median.js';
import { forecastTraining } from '../../src/engine/forecast-training.js';
import { DEFAULT_COSTS } from '../../src/plan/costs.js';
import { DEVICES, fixtureFolder } from './run-engine.js';

const root = mkdtempSync(join(tmpdir(), 'spillway-calibrate-'));
afterAll(() => {
  rmSync(root, { recursive: true });
});
const newFolder = (): string => mkdtempSync(join(root, 'costs-'));

const KEYS: CostKeys = { device: 'native', dtype: 'float32', workers: 1, nvmePaths: [root] };
const LINK = { bytesPerSecond: 3e9, secondsPerPiece: 1e-5 };
const HOST = { checkedBytesPerSecond: 7e9, addedBytesPerSecond: 3e9 };
const COPIES = { upload: LINK, download: { ...LINK, bytesPerSecond: 2e9 }, host: HOST };

describe('kept costs', () => {
  it('come back as they were put, and defaults stand in for the rest by name', async () => {
    const folder = newFolder();
    expect(await knownCosts(KEYS, DEFAULT_COSTS, folder)).toEqual({
      costs: DEFAULT_COSTS,
      missing: ['copies', 'update', 'nvme', 'compute'],
    });
    expect(readdirSync(folder)).toEqual([]); // Asking makes nothing.
    const store = await CostStore.open(folder);
    await store.putCopies('native', COPIES);
    const disk = { nvmeRead: LINK, nvmeWrite: LINK, nvmeSharing: 0.5 };
    await store.putDisk([root], disk);
    await store.putNvmeUpdate(KEYS, 1.5e9);
    await store.close();
    const { costs, missing } = await knownCosts(KEYS, DEFAULT_COSTS, folder);
    const { upload, download, host } = COPIES;
    expect(costs.links).toEqual({ upload, download, nvme_read: LINK, nvme_write: LINK });
    expect(costs).toMatchObject({ host, nvmeSharing: 0.5, updateNvmeBytesPerSecond: 1.5e9 });
    expect(missing).toEqual(['update', 'compute']);
    const elsewhere = await knownCosts({ ...KEYS, nvmePaths: ['/other'] }, DEFAULT_COSTS, folder);
    expect(elsewhere.missing).toEqual(['update', 'nvme', 'compute']);
    expect(elsewhere.costs.updateNvmeBytesPerSecond).toBeUndefined();
    const other = await knownCosts({ ...KEYS, device: 'cpu' }, DEFAULT_COSTS, folder);
    expect(other.missing).toContain('copies');
  });

  it('are as good as none when a byte of them is damaged', async () => {
    const folder = newFolder();
    const store = await CostStore.open(folder);
    await store.putCopies('native', COPIES);
    await store.close();
    const path = join(folder, 'directory');
    const database = open<Buffer, string>({ path, encoding: 'binary', noSubdir: false });
    for (const { key, value } of database.getRange()) {
      const damaged = Buffer.from(value);
      damaged[damaged.length - 3]! ^= 1;
      await database.put(key, damaged);
    }
    await database.close();
    const { costs, missing } = await knownCosts(KEYS, DEFAULT_COSTS, folder);
    expect(missing).toContain('copies');
    expect(costs.links.upload).toEqual(DEFAULT_COSTS.links.upload);
  });
});

describe('a directory of costs that cannot be used', () => {
  /** With the costs of copies in it, and the path of its file. */
  const kept = async (): Promise<{ folder: string; file: string }> => {
    const folder = newFolder();
    const store = await CostStore.open(folder);
    await store.putCopies('native', COPIES);
    await store.close();
    return { folder, file: join(folder, 'directory', 'data.mdb') };
  };
  const missingIn = async (folder: string): Promise<readonly string[]> =>
    (await knownCosts(KEYS, DEFAULT_COSTS, folder)).missing;

  // LMDB maps the file as it is: each of these ended the process by SIGSEGV or SIGBUS.
  it.each<[string, (whole: Buffer) => Buffer]>([
    ['is cut short within its pages', (whole) => whole.subarray(0, 6000)],
    ['is cut short by a page', (whole) => whole.subarray(0, whole.length - 4096)],
    ['is cut short within its head', (whole) => whole.subarray(0, 100)],
    ['has lost its second head', (whole) => Buffer.from(whole).fill(0, 4096, 8192)],
    ['is zeros', (whole) => Buffer.alloc(whole.length)],
    ['is something else', (whole) => Buffer.alloc(whole.length, 'costs')],
    ['is empty', () => Buffer.alloc(0)],
  ])('is as good as none when its file %s, and is made anew', async (_name, damage) => {
    const { folder, file } = await kept();
    expect(await missingIn(folder)).toEqual(['update', 'nvme', 'compute']);
    const damaged = damage(readFileSync(file));
    writeFileSync(file, damaged);
    expect(await missingIn(folder)).toEqual(['copies', 'update', 'nvme', 'compute']);
    expect(readFileSync(file).equals(damaged)).toBe(true);
    const store = await CostStore.open(folder);
    await store.putCopies('native', COPIES);
    await store.close();
    expect(await missingIn(folder)).toEqual(['update', 'nvme', 'compute']);
  });

  it('is no obstacle to planning, and is named to who would measure', async () => {
    const folder = newFolder();
    writeFileSync(join(folder, 'directory'), 'a file');
    expect(await missingIn(folder)).toEqual(['copies', 'update', 'nvme', 'compute']);
    await expect(CostStore.open(folder)).rejects.toMatchObject({
      code: 'PATH_UNWRITABLE',
      message: `cannot keep costs in ${folder} (ENOTDIR); make it writable, or set XDG_CACHE_HOME to a folder that is`,
    });
  });

  it('is read where nothing may be written', async () => {
    const { folder, file } = await kept();
    const path = join(folder, 'directory');
    rmSync(join(path, 'lock.mdb'));
    chmodSync(file, 0o444);
    chmodSync(path, 0o555);
    try {
      expect(await missingIn(folder)).toEqual(['update', 'nvme', 'compute']);
      // Root may write nevertheless.
      if (process.getuid?.() !== 0) {
        await expect(CostStore.open(folder)).rejects.toMatchObject({ code: 'PATH_UNWRITABLE' });
      }
    } finally {
      chmodSync(path, 0o755);
    }
  });

  it('does without a disk where none is asked for', async () => {
    const known = await knownCosts({ ...KEYS, nvmePaths: [] }, DEFAULT_COSTS, newFolder());
    expect(known.missing).toEqual(['copies', 'update', 'compute']);
  });
});

describe('a disk that reads and writes', () => {
  const rates = (read: number, write: number, mixed: number): DiskRate[] =>
    Object.entries({ read, write, mixed }).map(([mode, bytesPerSecond]) => ({
      mode: mode as DiskRate['mode'],
      blockBytes: 2 ** 20,
      depth: 8,
      bytesPerSecond,
    }));

  it.each([
    ['one or the other', 2, 6, 3, 1],
    ['both at once', 2, 6, 4, 0],
    ['something between', 2, 6, 24 / 7, 0.5],
  ])('shares %s', (_name, read, write, mixed, sharing) => {
    expect(costsOf(rates(read, write, mixed)).nvmeSharing).toBeCloseTo(sharing, 12);
  });

  it('is judged by neighbouring measurements, and a burst of others\u2019 writes counts little', () => {
    const rounds = [rates(2, 6, 3), rates(1, 3, 1.5), rates(2, 0.1, 3)].flat();
    const { nvmeRead, nvmeWrite, nvmeSharing } = costsOf(rounds);
    expect([nvmeRead.bytesPerSecond, nvmeWrite.bytesPerSecond]).toEqual([2, 3]);
    expect(nvmeSharing).toBeCloseTo(1, 12);
  });
});

it('the median is the middle one, the lower of two', () => {
  expect(median([5, 1, 9])).toBe(5);
  expect(median([4, 1, 3, 2])).toBe(2);
});

it.each(DEVICES)(
  'what is measured predicts every operation of its model, on %s',
  async (device) => {
    const folder = newFolder();
    const files = newFolder();
    const model = await readModelDefinition(fixtureFolder('llama-tiny'));
    const batchOf = (length: number) => emptyBatch({ batchSize: 1, length, packed: false });
    const options = { device, model, dtype: 'float32' as const, optimizerWorkers: 1 };
    const calibration = await calibrate({
      device,
      dtype: 'float32',
      workers: 1,
      nvmePaths: [files],
      compute: { options, length: 24, batchOf },
      folder,
      seconds: 2,
      // Much more than it takes, so that all of them are measured.
      leastComputeSeconds: 60,
    });
    expect(readdirSync(files)).toEqual([]); // No file stays.
    const costsFor = async (name: string, workers: number) => {
      const keys = { ...KEYS, device: name, workers, nvmePaths: [files] };
      const known = await knownCosts(keys, DEFAULT_COSTS, folder);
      // Nothing is to be estimated.
      return { ...known, costs: { ...known.costs, multiplyAddsPerSecond: NaN } };
    };
    const forecast = await forecastTraining({ ...options, exampleBatch: batchOf(24) }, costsFor);
    expect(forecast.unmeasured).toEqual([]);
    const { links, updateElementsPerSecond } = (await costsFor(device, 1)).costs;
    for (const { bytesPerSecond } of Object.values(links)) {
      // No machine of these years is outside.
      expect(bytesPerSecond).toBeGreaterThan(1e6);
      expect(bytesPerSecond).toBeLessThan(1e13);
    }
    expect(updateElementsPerSecond).toBe(calibration.update.updateElementsPerSecond);
    // All of the model's operations, those of its further layers too, are the measured ones.
    const { starts, ends } = forecast.timeline.steps.at(-1)!;
    const measured = new Map(calibration.compute.map(({ kind, seconds }) => [kind, seconds]));
    const computes = forecast.step.operations.filter(({ lane }) => lane === 'compute');
    expect(computes.length).toBeGreaterThan(calibration.compute.length);
    for (const { id, action } of computes) {
      const [kind] = [...measured].find(([name]) => name.startsWith(`${action.kind} `))!;
      expect(ends[id]! - starts[id]!).toBeCloseTo(measured.get(kind)!, 6);
    }
  },
);

it('what is stopped while a disk is measured leaves nothing there, and keeps what came before', async () => {
  const folder = newFolder();
  const files = newFolder();
  const controller = new AbortController();
  const calibration = calibrate({
    device: DEVICES[0]!,
    dtype: 'float32',
    workers: 1,
    nvmePaths: [files],
    compute: undefined,
    folder,
    seconds: 20,
    signal: controller.signal,
  });
  // The file goes as soon as it has its space: so that a killed process leaves nothing either.
  let abortedMs = Infinity;
  const watcher = watch(files, () => {
    if (abortedMs < Infinity || readdirSync(files).length > 0) return;
    abortedMs = performance.now();
    controller.abort();
  });
  try {
    await expect(calibration).rejects.toMatchObject({ name: 'AbortError' });
    // A disk has more than six seconds otherwise.
    expect(performance.now() - abortedMs).toBeLessThan(3000);
  } finally {
    watcher.close();
  }
  expect(readdirSync(files)).toEqual([]);
  const keys = { ...KEYS, device: DEVICES[0]!, nvmePaths: [files] };
  expect((await knownCosts(keys, DEFAULT_COSTS, folder)).missing).toEqual(['nvme', 'compute']);
}, 60_000);
