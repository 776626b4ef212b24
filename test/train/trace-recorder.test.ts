// Goal: tracks never overlap and are as few as can be; a trace is complete after its last step, and
// one that cannot be written warns and harms nothing.
import { strict as assert } from 'node:assert';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import * as fc from 'fast-check';
import { expect, it } from 'vitest';
import { silentLogger } from '../../core/logger.js';
import type { Span } from '../../src/engine/step-executor.js';
import { DEFAULT_COSTS, stepCosts } from '../../src/plan/costs.js';
import { SubTracks } from '../../src/train/trace/sub-tracks.js';
import { TraceRecorder } from '../../src/train/trace/trace-recorder.js';
import { checkTrace } from './trace-events.js';
import { workFolder } from './train-run.js';

const folder = workFolder();

const COSTS = { machine: DEFAULT_COSTS, defaults: ['all'] };

/** Nothing is predicted of a step without operations. */
const ENGINE = {
  deviceName: 'native',
  heldBytes: { device: 1, host: 2, nvme: 3 },
  budgetBytes: { device: 10, host: 20, nvme: 30 },
  takeHighDeviceBytes: () => 1,
  stepPlan: () => ({ operations: [], paramLoadCount: 0 }),
  stepCosts: () => stepCosts(DEFAULT_COSTS, { workers: 1, workOf: () => assert.fail() }),
};

function spanOf(step: number, id: number): Span {
  const operation = {
    id,
    lane: 'update',
    phase: 'update',
    action: { kind: 'norm' },
    bytes: {},
    after: [],
  } as const;
  const start = performance.now();
  return { step, operation, lane: 'update', start, end: start + 1e-3, bytes: 0 };
}

function record(
  path: string,
  steps: number,
  options: { readonly maxBytes?: number } = {},
): { recorder: TraceRecorder; warnings: string[] } {
  const warnings: string[] = [];
  const logger = { info: () => undefined, warn: (text: string) => void warnings.push(text) };
  const recorder = new TraceRecorder({ path, steps, logger, ...options });
  recorder.begin(ENGINE, COSTS);
  return { recorder, warnings };
}

it('slices on one track never overlap, and no more tracks are used than ran at once', () => {
  const interval = fc.tuple(fc.nat(60), fc.nat(20));
  fc.assert(
    fc.property(fc.array(interval, { maxLength: 40 }), (pairs) => {
      const slices = pairs
        .map(([start, length]) => ({ start, end: start + length + 1 }))
        .sort((a, b) => a.end - b.end);
      const tracks = new SubTracks();
      const placed = slices.map((slice) => ({
        ...slice,
        track: tracks.place(slice.start, slice.end),
      }));
      for (const [index, a] of placed.entries()) {
        for (const b of placed.slice(index + 1)) {
          expect(a.track !== b.track || a.end <= b.start || b.end <= a.start).toBe(true);
        }
      }
      const atOnce = slices.map(
        ({ start }) => slices.filter((one) => one.start <= start && start < one.end).length,
      );
      expect(new Set(placed.map(({ track }) => track)).size).toBe(Math.max(0, ...atOnce));
    }),
  );
});

it('the file is complete once the last step to record is committed', () => {
  const path = join(folder, 'early.json');
  const { recorder } = record(path, 2);
  for (const step of [7, 8, 9]) {
    recorder.onSpan(spanOf(step, 0));
    recorder.committed(step);
    const { steps, operations } = checkTrace(path);
    const expected = step === 7 ? [7] : [7, 8];
    expect(steps.map(({ args }) => args.step)).toEqual(expected);
    expect(operations.map(({ args }) => args.step)).toEqual(expected);
  }
  recorder.close();
  checkTrace(path);
});

it('holds no more than a buffer of a long step', () => {
  const path = join(folder, 'long.json');
  const { recorder } = record(path, 1);
  const first = spanOf(1, 0);
  for (let id = 0; id < 3000; id += 1) {
    recorder.onSpan({ ...spanOf(1, id), start: first.start, end: first.end });
  }
  // Some 250 bytes each: all but the last 64 KiB are in the file.
  expect(readFileSync(path).length).toBeGreaterThan(3000 * 150 - 65_536);
  recorder.close();
});

it('what a killed run leaves is complete JSON at any time', () => {
  const path = join(folder, 'killed.json');
  const { recorder } = record(path, 100);
  let seen = 0;
  for (let step = 1; step <= 4; step += 1) {
    for (let id = 0; id < 300; id += 1) {
      recorder.onSpan(spanOf(step, id));
      if (id % 50 !== 0 || (step === 1 && seen === 0 && readFileSync(path).length === 0)) continue;
      const { operations } = checkTrace(path);
      expect(operations.length).toBeGreaterThanOrEqual(seen);
      seen = operations.length;
    }
    recorder.committed(step);
    // Steps are in the file once they are complete.
    expect(checkTrace(path).operations).toHaveLength(step * 300);
    expect(checkTrace(path).steps).toHaveLength(step);
  }
  recorder.close();
  expect(checkTrace(path).operations).toHaveLength(1200);
});

it('ends whole at its limit, with one warning that says what to do', () => {
  const path = join(folder, 'limited.json');
  const { recorder, warnings } = record(path, 100, { maxBytes: 100_000 });
  for (let step = 1; step <= 5; step += 1) {
    for (let id = 0; id < 200; id += 1) recorder.onSpan(spanOf(step, id));
    recorder.committed(step);
  }
  recorder.close();
  const { operations, steps } = checkTrace(path);
  expect(operations.length).toBeGreaterThan(200);
  expect(steps.length).toBeLessThan(5);
  expect(readFileSync(path).length).toBeLessThan(110_000);
  expect(warnings).toEqual([
    `the trace ${path} ends early, at 97.66 KiB; record fewer steps by trace_steps`,
  ]);
});

it('evaluations leave room for steps, whose stalls and extents they do not touch', () => {
  const path = join(folder, 'evaluated.json');
  const { recorder, warnings } = record(path, 1, { maxBytes: 200_000 });
  const start = performance.now();
  for (let id = 0; id < 2000; id += 1) {
    recorder.onSpan({ ...spanOf(0, id), isEvaluation: true });
  }
  recorder.interlude('evaluation', 0, start);
  recorder.onSpan(spanOf(1, 0));
  recorder.committed(1);
  expect(warnings).toEqual([]);
  const { operations, steps, interludes } = checkTrace(path);
  const evaluated = operations.filter(({ args }) => args.evaluation === true);
  expect(evaluated.length).toBeGreaterThan(100);
  expect(evaluated.length).toBeLessThan(2000);
  expect(operations).toHaveLength(evaluated.length + 1);
  expect(interludes).toHaveLength(1);
  expect(steps[0]!.dur).toBeLessThan(1000);
});

it('between two readings stands the most that the device held', () => {
  const path = join(folder, 'held.json');
  const highs = [0, 5, 9, 7, 7];
  const held = [5, 5, 7, 7, 3];
  const recorder = new TraceRecorder({ path, steps: 1, logger: silentLogger });
  recorder.begin(
    {
      ...ENGINE,
      takeHighDeviceBytes: () => highs.shift()!,
      get heldBytes() {
        return { device: held.shift()!, host: 2, nvme: 3 };
      },
    },
    COSTS,
  );
  for (let id = 0; id < 3; id += 1) recorder.onSpan(spanOf(1, id));
  recorder.close();
  const device = checkTrace(path).counters.filter(({ name }) => name === 'device');
  expect(device.map(({ args }) => args.bytes)).toEqual([5, 9, 5, 7]);
  const times = device.map(({ ts }) => ts);
  expect(times).toEqual(times.toSorted((a, b) => a - b));
});

it('a run that never begins leaves an empty file', () => {
  const path = join(folder, 'empty.json');
  const logger = { info: () => undefined, warn: () => undefined };
  new TraceRecorder({ path, steps: 1, logger }).close();
  expect(readFileSync(path, 'utf8')).toBe('');
});

it.runIf(existsSync('/dev/full'))('a full disk ends the trace with one warning', () => {
  const { recorder, warnings } = record('/dev/full', 5);
  for (let id = 0; id < 1000; id += 1) recorder.onSpan(spanOf(1, id));
  recorder.committed(1);
  recorder.close();
  expect(warnings).toEqual([
    expect.stringMatching(/^the trace \/dev\/full ends early; .* OUTPUT_FULL: /) as string,
  ]);
});
