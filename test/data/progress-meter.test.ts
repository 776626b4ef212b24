// Goal: progress is told at once, at most ten times a second, and at the end, never backwards.
import { afterEach, expect, it, vi } from 'vitest';
import { ProgressMeter } from '../../src/data/progress-meter.js';
import type { DatasetProgress } from '../../src/data/token-dataset.js';

afterEach(() => {
  vi.useRealTimers();
});

function meterOf(bytesTotal: number) {
  const told: DatasetProgress[] = [];
  const onProgress = (progress: DatasetProgress) => void told.push(progress);
  return { told, meter: new ProgressMeter({ split: 'eval', bytesTotal, onProgress }) };
}

it('tells the first, at most ten a second, and the last', () => {
  vi.useFakeTimers({ toFake: ['performance'] });
  const { told, meter } = meterOf(5000);
  for (let batch = 1; batch <= 1000; batch += 1) {
    vi.advanceTimersByTime(1);
    meter.report(batch, 5 * batch);
  }
  meter.finish(1000);
  // At 0 ms, 100 ms … 1000 ms, and the end.
  expect(told.map((progress) => progress.rows)).toEqual([
    ...Array.from({ length: 11 }, (_, tenth) => 100 * tenth),
    1000,
  ]);
  expect(told[3]).toEqual({ split: 'eval', rows: 300, bytesDone: 1500, bytesTotal: 5000 });
});

it('ends at the bytes that were read when a pipe has no size or a file has grown', () => {
  const { told, meter } = meterOf(0);
  meter.report(10, 700);
  meter.finish(10);
  expect(told.at(-1)).toEqual({ split: 'eval', rows: 10, bytesDone: 700, bytesTotal: 700 });
});
