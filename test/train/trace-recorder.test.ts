// Goal: tracks never overlap and are as few as can be; a trace is complete after its last step, and
// one that cannot be written warns and harms nothing.
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import * as fc from 'fast-check';
import { expect, it } from 'vitest';
import type { Span } from '../../src/engine/step-executor.js';
import { SubTracks } from '../../src/train/trace/sub-tracks.js';
import { TraceRecorder } from '../../src/train/trace/trace-recorder.js';
import { checkTrace } from './trace-events.js';
import { workFolder } from './train-run.js';

const folder = workFolder();

const ENGINE = {
  deviceName: 'native',
  heldBytes: { device: 1, host: 2, nvme: 3 },
  budgetBytes: { device: 10, host: 20, nvme: 30 },
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

function record(path: string, steps: number): { recorder: TraceRecorder; warnings: string[] } {
  const warnings: string[] = [];
  const logger = { info: () => undefined, warn: (text: string) => void warnings.push(text) };
  const recorder = new TraceRecorder({ path, steps, logger });
  recorder.begin(ENGINE);
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
    if (step >= 8) {
      const steps = checkTrace(path).slices.filter(({ cat }) => cat === 'step');
      expect(steps.map(({ args }) => args.step)).toEqual([7, 8]);
    } else {
      expect(() => checkTrace(path)).toThrow();
    }
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
