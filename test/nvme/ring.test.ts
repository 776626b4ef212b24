// Goal: what only the ring does: O_DIRECT, shared submissions, survival of every way to end.
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { constants } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';

import { native } from '../../tiers/native/binding.js';
import { ringUnavailableReason } from '../../tiers/nvme/create-io-backend.js';
import { RingBackend } from '../../tiers/nvme/ring-backend.js';
import {
  PAGE,
  buffer,
  failure,
  openDescriptors,
  pattern,
  sameBytes,
  startWorker,
  temporaryFolder,
} from './support.js';

const noRing = ringUnavailableReason();
const program = new URL('./ring-program.ts', import.meta.url);
const script = fileURLToPath(program);

describe.skipIf(noRing !== undefined)(`RingBackend ${noRing ?? ''}`, () => {
  it('opens with O_DIRECT where the disk offers it, as the kernel confirms', async (context) => {
    const backend = new RingBackend();
    const file = await backend.open(join(temporaryFolder(), 'data.bin'));
    const info = readFileSync(`/proc/self/fdinfo/${file.fd}`, 'utf8');
    const flags = Number.parseInt(/^flags:\s+([0-7]+)/m.exec(info)![1]!, 8);
    await backend.dispose();
    expect((flags & constants.O_DIRECT) !== 0).toBe(file.direct);
    if (!file.direct) context.skip('the disk of the temporary folder has no O_DIRECT');
  });

  it('refuses what O_DIRECT cannot do before it reaches the kernel', async (context) => {
    const backend = new RingBackend();
    const file = await backend.open(join(temporaryFolder(), 'data.bin'));
    if (!file.direct) {
      await backend.dispose();
      context.skip('the disk of the temporary folder has no O_DIRECT');
    }
    const bytes = buffer(2 * PAGE);
    for (const [offset, view] of [
      [1, bytes],
      [0, bytes.subarray(0, 100)],
      [0, bytes.subarray(1, PAGE + 1)],
    ] as const) {
      expect((await failure(() => backend.write(file, offset, view))).code).toBe('INTERNAL');
    }
    await backend.dispose();
  });

  it('reports a full device as NVME_FULL with ENOSPC', async () => {
    const backend = new RingBackend();
    const file = await backend.open('/dev/full');
    const error = await failure(() => backend.write(file, 0, buffer(PAGE)));
    expect([error.code, error.facts['errno']]).toEqual(['NVME_FULL', 'ENOSPC']);
    await backend.dispose();
  });

  it('lets running requests end on dispose, rejects waiting ones, and frees all descriptors', async () => {
    const before = openDescriptors();
    const backend = new RingBackend({ depth: 2 });
    const file = await backend.open(join(temporaryFolder(), 'data.bin'));
    await backend.reserve(file, 64 * PAGE);
    const outcomes = Promise.allSettled(
      Array.from({ length: 10 }, (_, index) => backend.write(file, index * PAGE, pattern(PAGE, 1))),
    );
    await Promise.resolve();
    await backend.dispose();
    const statuses = (await outcomes).map(({ status }) => status);
    expect(statuses.filter((status) => status === 'fulfilled')).toHaveLength(2);
    expect(backend.bytesWritten).toBe(2 * PAGE);
    expect(openDescriptors()).toBe(before);
  });

  it('may be disposed by the continuation of its own completion', async () => {
    for (let round = 0; round < 20; round += 1) {
      const backend = new RingBackend({ depth: 4 });
      const file = await backend.open(join(temporaryFolder(), 'data.bin'));
      await backend.reserve(file, 8 * PAGE);
      const writes = Array.from({ length: 8 }, (_, index) =>
        backend.write(file, index * PAGE, pattern(PAGE, index)).then(() => backend.dispose()),
      );
      await Promise.allSettled(writes);
    }
  });

  it('may be closed inside its own callback, and forgets the rest', async () => {
    const addon = native()!;
    const backend = new RingBackend();
    const file = await backend.open(join(temporaryFolder(), 'data.bin'));
    await backend.reserve(file, 8 * PAGE);
    const completions = new Int32Array(new SharedArrayBuffer(8 * 4));
    let calls = 0;
    await new Promise<void>((resolve) => {
      const ring = addon.asyncRingCreate(4, completions, () => {
        calls += 1;
        addon.asyncRingClose(ring);
        addon.asyncRingClose(ring);
        resolve();
      });
      for (let slot = 0; slot < 4; slot += 1) {
        addon.asyncRingPush(ring, slot, 0, file.fd, slot * PAGE, buffer(PAGE));
      }
      expect(() => addon.asyncRingPush(ring, 0, 0, file.fd, 0, buffer(PAGE))).toThrow(RangeError);
      expect(addon.asyncRingSubmit(ring)).toBe(0);
    });
    await new Promise((resolve) => setTimeout(resolve, 20));
    expect(calls).toBe(1);
    await backend.dispose();
  });

  it('holds a buffer in flight and lets it go afterwards', () => {
    const result = spawnSync(
      process.execPath,
      ['--expose-gc', '--import', 'tsx', script, 'collect', temporaryFolder()],
      { encoding: 'utf8' },
    );
    expect(result.stderr).toBe('');
    expect(JSON.parse(result.stdout)).toEqual({ intact: true, collected: 24 });
  });

  for (const ending of ['fall-off', 'exit', 'throw', 'idle'] as const) {
    it(`survives a process that ends by ${ending} with requests in flight or an idle ring`, () => {
      const result = spawnSync(
        process.execPath,
        ['--import', 'tsx', script, ending, temporaryFolder()],
        { encoding: 'utf8', timeout: 30_000 },
      );
      expect(result.signal).toBe(null);
      expect(result.status).toBe(ending === 'throw' ? 7 : 0);
    });
  }

  for (const ending of ['fall-off', 'exit', 'terminate'] as const) {
    it(`survives a worker that ends by ${ending} with requests in flight`, async () => {
      for (let round = 0; round < 2; round += 1) {
        const worker = startWorker(program, { argv: [ending, temporaryFolder()] });
        const exited = new Promise<number>((resolve) => worker.once('exit', resolve));
        await new Promise((resolve, reject) => {
          worker.once('message', resolve);
          worker.once('error', reject);
        });
        if (ending === 'terminate') await worker.terminate();
        expect(await exited).toBe(ending === 'terminate' ? 1 : 0);
      }
    });
  }

  it('keeps the bytes of two rings in one process apart', async () => {
    const backends = [new RingBackend(), new RingBackend()];
    const folder = temporaryFolder();
    await Promise.all(
      backends.map(async (backend, seed) => {
        const file = await backend.open(join(folder, `${seed}.bin`));
        await backend.reserve(file, 32 * PAGE);
        const source = pattern(32 * PAGE, seed);
        const target = buffer(32 * PAGE);
        await backend.write(file, 0, source);
        await backend.read(file, 0, target);
        expect(sameBytes(target, source)).toBe(true);
      }),
    );
    for (const backend of backends) await backend.dispose();
  });
});
