// Goal: the trace of a run is valid, complete and says the bytes that the run counted; summary.json
// holds plan beside measurement, and on the native device they are equal.
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import { LANES, LINKS, TIERS, type Link } from '../../core/types.js';
import type { RunSummary } from '../../src/train/run-reporter.js';
import { availableDevices } from '../../tiers/device/create-device.js';
import {
  TINY_MODEL,
  cyclicRows,
  readJson,
  train,
  workFolder,
  writeJsonl,
  type Keys,
} from './train-run.js';
import { checkTrace, type CheckedTrace, type Slice } from './trace-events.js';

const folder = workFolder();
const path = (name: string): string => join(folder, name);
const STEPS = 3;

const rows = Array.from({ length: 12 }, (_, row) => ({
  input_ids: Array.from({ length: 16 }, (__, i) => 3 + ((row + i) % 7) * 11),
}));

const base: Keys = {
  model_name_or_path: TINY_MODEL,
  data_files: writeJsonl(path('rows.jsonl'), rows),
  output_dir: path('output'),
  device_memory: '4MiB',
  host_memory: '24MiB',
  nvme_path: path('nvme'),
  nvme_memory: '64MiB',
  'offload_param.device': 'nvme',
  'offload_optimizer.device': 'nvme',
  gradient_accumulation_steps: 2,
  per_device_train_batch_size: 2,
  sub_group_size: 4096,
  max_steps: STEPS,
  save_strategy: 'no',
  logging_steps: 1,
};

const isNative = availableDevices()[0] === 'native';

/** Bytes by link that slices say they moved. */
function movedIn(slices: readonly Slice[]): Record<Link, number> {
  const sums = { upload: 0, download: 0, nvme_read: 0, nvme_write: 0 };
  for (const link of LINKS) {
    for (const { args } of slices) sums[link] += args.bytes?.[link] ?? 0;
  }
  return sums;
}

describe('the trace of a whole run', () => {
  let trace: CheckedTrace;
  let summary: RunSummary;
  beforeAll(async () => {
    const told = await train({ ...base, trace: path('trace.json'), trace_steps: STEPS });
    summary = told.summary!;
    trace = checkTrace(path('trace.json'));
  });

  it('has a track per lane, and one of the steps', () => {
    const names = new Set([...trace.tracks.values()].map((name) => name.replace(/ \d+$/, '')));
    expect(names).toEqual(new Set(['step', ...LANES]));
    const steps = trace.slices.filter(({ cat }) => cat === 'step');
    expect(steps.map(({ name }) => name)).toEqual(['step 1', 'step 2', 'step 3']);
    for (const { cat, tid } of trace.slices) {
      expect(trace.tracks.get(tid)!.replace(/ \d+$/, '')).toBe(cat);
    }
    // Compute is one queue.
    expect([...trace.tracks.values()].filter((name) => name.startsWith('compute'))).toHaveLength(1);
  });

  it('shows every operation of every step', () => {
    const operations = trace.slices.filter(({ cat }) => cat !== 'step');
    const seen = [1, 2, 3].map((step) => {
      const own = operations.filter(({ args }) => args.step === step);
      return [...new Set(own.map(({ args }) => args.operation!))].sort((a, b) => a - b);
    });
    expect(seen[0]).toEqual(Array.from({ length: seen[0]!.length }, (_, id) => id));
    expect(seen[1]).toEqual(seen[0]);
    expect(seen[2]).toEqual(seen[0]);
    const actions = new Set(operations.map(({ args }) => args.action));
    for (const action of [
      'forward',
      'reverse',
      'fetch-params',
      'write-gradients',
      'norm',
      'update',
    ]) {
      expect(actions).toContain(action);
    }
  });

  it('leads an arrow from every fetch to the operations that use it', () => {
    for (const { from, to } of trace.arrows) {
      expect(from.cat).toBe('upload');
      expect(to.cat).toBe('compute');
      expect(to.args.step).toBe(from.args.step);
      expect(from.args.operation).toBeLessThan(to.args.operation!);
      if (from.args.action === 'fetch-params')
        expect(to.args.block ?? from.args.block).toBe(from.args.block);
    }
    const key = ({ args }: Slice): string => `${args.step}/${args.operation}`;
    const fetches = trace.slices.filter(({ args }) => args.action?.startsWith('fetch-') ?? false);
    const led = new Set(trace.arrows.map(({ from }) => key(from)));
    expect(fetches.length).toBeGreaterThan(0);
    expect(led).toEqual(new Set(fetches.map(key)));
  });

  it('says the bytes that the run counted, link by link', () => {
    const moved = movedIn(trace.slices);
    for (const link of LINKS) {
      expect(moved[link]).toBeGreaterThan(0);
      expect(moved[link] / STEPS).toBe(summary.bytes_moved_per_step![link]);
    }
  });

  it('counts bytes held within the budgets and peaks', () => {
    expect(trace.budgets).toEqual(summary.budget_bytes);
    for (const tier of TIERS) {
      const held = trace.counters.filter(({ name }) => name === `${tier} bytes`);
      expect(held.length).toBeGreaterThan(0);
      const most = Math.max(...held.map(({ args }) => args.bytes));
      expect(most).toBeGreaterThan(0);
      expect(most).toBeLessThanOrEqual(summary.peak_bytes[tier]);
    }
    // The device's is a course, not one number.
    const device = trace.counters.filter(({ name }) => name === 'device bytes');
    expect(new Set(device.map(({ args }) => args.bytes)).size).toBeGreaterThan(3);
  });

  it.runIf(isNative)('and the summary says that all went as planned', () => {
    const { planned, bytes_moved_per_step: moved, peak_bytes: peaks } = summary;
    expect(planned!.bytes_per_step).toEqual(moved);
    expect(planned!.peak_bytes).toEqual(peaks);
    expect(readJson(path('output/summary.json'))).toMatchObject({ planned });
  });
});

it.runIf(isNative)(
  'plan and measurement agree over any lengths, evaluations and checkpoints',
  async () => {
    const keys = {
      ...base,
      data_files: writeJsonl(path('lengths.jsonl'), cyclicRows(17)),
      output_dir: path('lengths'),
      max_steps: 5,
      // Its batches need more of the device than a step's.
      per_device_train_batch_size: 1,
      eval_split: 10,
      per_device_eval_batch_size: 10,
      eval_strategy: 'steps',
      eval_steps: 2,
      eval_on_start: true,
      save_strategy: 'steps',
      save_steps: 2,
    };
    const { summary } = await train(keys);
    const { planned, bytes_moved_per_step: moved } = summary!;
    expect(planned!.bytes_per_step).toEqual(moved);
    expect(summary!.peak_bytes).toEqual(planned!.peak_bytes);
    for (const link of LINKS) expect(moved![link] * 5).toBeLessThan(summary!.bytes_moved[link] + 5);
  },
);

it('only the first steps are recorded', async () => {
  const file = path('first.json');
  const keys = { ...base, max_steps: 6, trace: file, trace_steps: 2, output_dir: path('first') };
  const { summary } = await train(keys);
  expect(summary!.global_step).toBe(6);
  const { slices } = checkTrace(file);
  expect(new Set(slices.map(({ args }) => args.step))).toEqual(new Set([1, 2]));
});

it('a run that ends before its trace does completes the file', async () => {
  const file = path('stopped/trace.json');
  const keys = { ...base, trace: file, trace_steps: 100, output_dir: path('stopped') };
  await train({ ...keys, max_steps: 50 }, { stopAfterStep: 2 });
  expect(new Set(checkTrace(file).slices.map(({ args }) => args.step))).toEqual(new Set([1, 2]));
});

it.each([
  ['a folder that is not there', () => path('nowhere/trace.json')],
  ['a folder', () => folder],
  ['a file in place of a folder', () => path('rows.jsonl/trace.json')],
])('a trace path that is %s is refused before anything else', async (_, file) => {
  const output = path('refused');
  const keys = { ...base, data_files: path('no data'), output_dir: output, trace: file() };
  await expect(train(keys)).rejects.toMatchObject({ code: 'PATH_UNWRITABLE' });
  expect(existsSync(output)).toBe(false);
});

it('a file that is there is replaced', async () => {
  const file = path('old.json');
  writeFileSync(file, 'x'.repeat(10_000_000));
  await train({ ...base, max_steps: 1, trace: file, output_dir: path('replaced') });
  expect(checkTrace(file).slices.length).toBeGreaterThan(0);
  expect(readFileSync(file).length).toBeLessThan(10_000_000);
});

it('docs/OUTPUT.md lists the keys of summary.json, in order', async () => {
  const page = readFileSync(new URL('../../docs/OUTPUT.md', import.meta.url), 'utf8');
  const section = /^## summary\.json$[^]*?(?=^## )/m.exec(page)![0];
  const documented = Array.from(section.matchAll(/^\| `(\w+)` +\|/gm), ([, key]) => key);
  const keys = { ...base, max_steps: 2, eval_split: 2, eval_strategy: 'steps', eval_steps: 1 };
  const best = { save_strategy: 'best', load_best_model_at_end: true };
  await train({ ...keys, ...best, output_dir: path('documented') });
  expect(Object.keys(readJson(path('documented/summary.json')))).toEqual(documented);
});
