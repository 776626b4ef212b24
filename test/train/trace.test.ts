// Goal: the trace of a run is valid, complete and says the bytes that the run counted; summary.json
// holds plan beside measurement, and on the native device they are equal.
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import { LANES, LINKS, TIERS, type Link } from '../../core/types.js';
import { silentLogger } from '../../core/logger.js';
import { tracedBytes } from '../../bench/fine-tune/traced-bytes.js';
import { loadConfig } from '../../src/config/load-config.js';
import { planReport } from '../../src/train/plan-report.js';
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

type Times = { readonly ts: number; readonly dur: number };

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
    for (const { args } of slices) sums[link] += args.bytes[link] ?? 0;
  }
  return sums;
}

/** Microseconds as whole nanoseconds, which compare exactly. */
const nanoseconds = (microseconds: number): number => Math.round(microseconds * 1000);

const lengthOf = (slices: readonly Times[]): number =>
  slices.reduce((sum, { dur }) => sum + dur, 0);

function expectApart(slices: readonly Times[]): void {
  const sorted = [...slices].sort((a, b) => a.ts - b.ts);
  for (const [index, { ts }] of sorted.entries()) {
    const before = sorted[index - 1];
    if (before === undefined) continue;
    expect(nanoseconds(before.ts + before.dur)).toBeLessThanOrEqual(nanoseconds(ts));
  }
}

/** Numbers of the operations of a step, ascending. */
function operationsOf(operations: readonly Slice[], step: number): number[] {
  const own = operations.filter(({ args }) => args.step === step);
  return [...new Set(own.map(({ args }) => args.operation))].sort((a, b) => a - b);
}

describe('the trace of a whole run', () => {
  let trace: CheckedTrace;
  let summary: RunSummary;
  beforeAll(async () => {
    const told = await train({ ...base, trace: path('trace.json'), trace_steps: STEPS });
    summary = told.summary!;
    trace = checkTrace(path('trace.json'));
  });

  it('has a track per lane, one of the steps and one of what compute waited for', () => {
    const names = new Set([...trace.tracks.values()].map((name) => name.replace(/ \d+$/, '')));
    // What is written to NVMe here, updates write.
    const lanes = LANES.filter((lane) => lane !== 'nvme_write');
    expect(names).toEqual(new Set(['step', 'stalls', 'host', ...lanes]));
    expect(trace.steps.map(({ name }) => name)).toEqual(['step 1', 'step 2', 'step 3']);
    for (const { cat, tid } of [...trace.operations, ...trace.steps]) {
      expect(trace.tracks.get(tid)!.replace(/ \d+$/, '')).toBe(cat);
    }
    // Compute is one queue.
    expect([...trace.tracks.values()].filter((name) => name.startsWith('compute'))).toHaveLength(1);
  });

  it('shows every operation of every step', () => {
    const seen = [1, 2, 3].map((step) => operationsOf(trace.operations, step));
    expect(seen[0]).toEqual(Array.from({ length: seen[0]!.length }, (_, id) => id));
    expect(seen[1]).toEqual(seen[0]);
    expect(seen[2]).toEqual(seen[0]);
    const actions = new Set(trace.operations.map(({ args }) => args.action));
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

  it('says what compute waited for whenever it stood still', () => {
    const { steps, operations, stalls } = trace;
    const compute = operations.filter(({ cat }) => cat === 'compute');
    const last = compute.at(-1)!;
    const whole = nanoseconds(last.ts + last.dur - steps[0]!.ts);
    const told = nanoseconds(lengthOf(compute) + lengthOf(stalls));
    // Less than a microsecond beside each operation is nobody's.
    expect(told).toBeLessThanOrEqual(whole);
    expect(whole - told).toBeLessThan(compute.length * 3000);
    expectApart([...compute, ...stalls]);
    for (const { name, args } of stalls) {
      if (!('lane' in args)) {
        expect(['host', 'between steps']).toContain(name);
        continue;
      }
      const [cause] = operations.filter(
        (one) => one.args.step === args.for_step && one.args.operation === args.for_operation,
      );
      expect(name).toMatch(new RegExp(`^waits for ${args.lane}: ${cause!.args.action}`));
      expect(args.step - args.for_step).toBeLessThanOrEqual(2);
    }
    const lanes = new Set(stalls.map(({ args }) => ('lane' in args ? args.lane : 'host')));
    expect(lanes).toContain('host');
    expect(lanes.size).toBeGreaterThan(2);
    expect(lanes).not.toContain('compute');
  });

  it('shows the same operations as the plan predicts them', () => {
    const { predicted } = trace;
    expect(predicted.steps.map(({ name }) => name)).toEqual(['step 1', 'step 2', 'step 3']);
    expect(predicted.steps[0]!.ts).toBe(trace.steps[0]!.ts);
    for (const step of [1, 2, 3]) {
      expect(operationsOf(predicted.operations, step)).toEqual(
        operationsOf(trace.operations, step),
      );
    }
    expect(predicted.operations).toHaveLength(
      new Set(predicted.operations.map(({ args }) => `${args.step}/${args.operation}`)).size,
    );
    const sums = movedIn(predicted.operations);
    for (const link of LINKS)
      expect(sums[link] / STEPS).toBe(summary.planned!.bytes_per_step[link]);
    for (const { args, ts, dur } of predicted.steps) {
      const own = predicted.operations.filter((one) => one.args.step === args.step);
      const compute = own.filter(({ cat }) => cat === 'compute');
      expect(args.busy_seconds?.['compute']).toBeCloseTo(lengthOf(compute) / 1e6, 6);
      for (const one of own.filter(({ args: { action } }) => action !== 'update')) {
        expect(one.ts).toBeGreaterThanOrEqual(ts);
        expect(nanoseconds(one.ts + one.dur)).toBeLessThanOrEqual(nanoseconds(ts + dur));
      }
      for (const link of LINKS) {
        const moved = movedIn(own.filter(({ cat }) => cat !== 'update'))[link];
        expect((args.busy_seconds![link] ?? 0) > 0).toBe(moved > 0);
      }
    }
  });

  it('predicts by the costs by which spillway plan forecasts', async () => {
    const flags = new Map(Object.entries({ ...base, max_length: 16 })) as never;
    const { report } = await planReport(await loadConfig({ flags }), silentLogger);
    const { compute, upload, download } = report.seconds_per_step;
    for (const { args } of trace.predicted.steps) {
      expect(args.busy_seconds!['compute']).toBeCloseTo(compute, 9);
      expect(args.busy_seconds!['upload']).toBeCloseTo(upload, 9);
      expect(args.busy_seconds!['download']).toBeCloseTo(download, 9);
    }
  });

  it('leads an arrow from every fetch to the operations that use it', () => {
    for (const { from, to } of trace.arrows) {
      expect(from.cat).toBe('upload');
      expect(to.cat).toBe('compute');
      expect(to.args.step).toBe(from.args.step);
      expect(from.args.operation).toBeLessThan(to.args.operation);
      if (from.args.action === 'fetch-params')
        expect(to.args.block ?? from.args.block).toBe(from.args.block);
    }
    const key = ({ args }: Slice): string => `${args.step}/${args.operation}`;
    const fetches = trace.operations.filter(({ args }) => args.action.startsWith('fetch-'));
    const led = new Set(trace.arrows.map(({ from }) => key(from)));
    expect(fetches.length).toBeGreaterThan(0);
    expect(led).toEqual(new Set(fetches.map(key)));
  });

  it('says the bytes that the run counted, link by link', () => {
    const moved = movedIn(trace.operations);
    for (const link of LINKS) {
      expect(moved[link]).toBeGreaterThan(0);
      expect(moved[link] / STEPS).toBe(summary.bytes_moved_per_step![link]);
    }
  });

  it('gives the fine-tuning benchmark what the plan says of each kind of operation', async () => {
    const flags = new Map(Object.entries({ ...base, max_length: 16 })) as never;
    const { report } = await planReport(await loadConfig({ flags }), silentLogger);
    const traced = await tracedBytes(path('trace.json'));
    expect([...traced.keys()]).toEqual([1, 2, 3]);
    for (const actions of traced.values()) expect(actions).toEqual(report.bytes_per_step_by_action);
  });

  it('counts bytes held up to the planned peaks', () => {
    expect(trace.budgets).toEqual(summary.budget_bytes);
    for (const tier of TIERS) {
      const held = trace.counters.filter(({ name }) => name === tier);
      const most = Math.max(...held.map(({ args }) => args.bytes));
      expect(most).toBe(summary.peak_bytes[tier]);
      if (isNative) expect(most).toBe(summary.planned!.peak_bytes[tier]);
    }
    // The device's is a course, not one number.
    const device = trace.counters.filter(({ name }) => name === 'device');
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

it('evaluations are recorded between the steps, and are no part of them', async () => {
  const file = path('evaluated.json');
  const keys = {
    ...base,
    output_dir: path('evaluated'),
    eval_split: 3,
    eval_strategy: 'steps',
    eval_steps: 2,
    eval_on_start: true,
    save_strategy: 'steps',
    save_steps: 2,
    max_steps: 4,
    trace: file,
    trace_steps: 4,
  };
  const { summary } = await train(keys);
  const trace = checkTrace(file);
  // Of the last step's evaluation and checkpoint the trace knows no more.
  expect(trace.interludes.map(({ name, args }) => `${name} ${args.step}`)).toEqual([
    'evaluation 0',
    'evaluation 2',
    'checkpoint 2',
  ]);
  const evaluated = trace.operations.filter(({ args }) => args.evaluation === true);
  for (const { ts, dur, args } of evaluated) {
    const around = trace.interludes.filter(
      (one) => one.ts <= ts && nanoseconds(ts + dur) <= nanoseconds(one.ts + one.dur),
    );
    expect(around.map((one) => one.args.step)).toEqual([args.step]);
    expect(around[0]!.name).toBe('evaluation');
  }
  const actions = new Set(evaluated.map(({ args }) => args.action));
  for (const action of ['fetch-rows', 'fetch-params', 'forward', 'losses']) {
    expect(actions).toContain(action);
  }
  // Both evaluated all rows.
  const [first, second] = [0, 2].map((step) => evaluated.filter(({ args }) => args.step === step));
  expect(movedIn(second!)).toEqual(movedIn(first!));
  const steps = trace.operations.filter(({ args }) => args.evaluation !== true);
  for (const link of LINKS) {
    expect(Math.round(movedIn(steps)[link] / 4)).toBe(summary!.bytes_moved_per_step![link]);
  }
  const compute = trace.operations.filter(({ cat }) => cat === 'compute');
  expectApart([...compute, ...trace.stalls]);
  for (const { ts, dur } of trace.stalls) {
    for (const interlude of trace.interludes) {
      const common = Math.min(ts + dur, interlude.ts + interlude.dur) - Math.max(ts, interlude.ts);
      expect(common).toBeLessThan(1);
    }
  }
});

it('only the first steps are recorded', async () => {
  const file = path('first.json');
  const keys = { ...base, max_steps: 6, trace: file, trace_steps: 2, output_dir: path('first') };
  const { summary } = await train(keys);
  expect(summary!.global_step).toBe(6);
  const { operations, predicted } = checkTrace(file);
  for (const some of [operations, predicted.operations]) {
    expect(new Set(some.map(({ args }) => args.step))).toEqual(new Set([1, 2]));
  }
});

it('a run that ends before its trace does completes the file', async () => {
  const file = path('stopped/trace.json');
  const keys = { ...base, trace: file, trace_steps: 100, output_dir: path('stopped') };
  await train({ ...keys, max_steps: 50 }, { stopAfterStep: 2 });
  const { operations, predicted } = checkTrace(file);
  for (const some of [operations, predicted.operations]) {
    expect(new Set(some.map(({ args }) => args.step))).toEqual(new Set([1, 2]));
  }
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
  expect(checkTrace(file).operations.length).toBeGreaterThan(0);
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
