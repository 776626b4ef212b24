// Goal: spans of a run give each operation the time that it took alone: what turns, handing over and
// the host took is told apart.
import { expect, it } from 'vitest';
import type { Lane } from '../../core/types.js';
import { measuredRun, type MeasuredSpan } from '../../src/plan/measured-seconds.js';
import type { Operation } from '../../src/plan/step-plan.js';

const operation = (id: number): Operation => ({
  id,
  lane: 'compute',
  phase: 'forward',
  action: { kind: 'norm' },
  bytes: {},
  after: [],
});

const span = (
  id: number,
  lane: Lane,
  [start, end]: readonly [number, number],
  more: Partial<MeasuredSpan> = {},
): MeasuredSpan => ({ operation: operation(id), lane, step: 1, start, end, ...more });

it('charges a piece the time after the one before it on its link', () => {
  const { seconds } = measuredRun([
    span(0, 'upload', [0, 40]),
    span(1, 'upload', [10, 70]),
    span(0, 'upload', [50, 80]),
    span(0, 'download', [0, 100]),
  ]);
  expect(seconds(0, operation(0), 'upload')).toBeCloseTo(0.05, 12);
  expect(seconds(0, operation(1), 'upload')).toBeCloseTo(0.03, 12);
  expect(seconds(0, operation(0), 'download')).toBeCloseTo(0.1, 12);
});

it('charges a lone worker the handing over, and not the wait for what an update needs', () => {
  const { seconds, rules } = measuredRun([
    span(0, 'update', [5, 100], { readyAt: 0 }),
    span(1, 'update', [120, 200], { readyAt: 0 }),
    span(2, 'update', [310, 400], { readyAt: 300 }),
  ]);
  expect(rules.workers).toBe(1);
  const took = [0, 1, 2].map((id) => seconds(0, operation(id), 'update'));
  expect(took).toEqual([0.1, 0.1, 0.1]);
});

it('counts workers by how many updates usually run at a time', () => {
  // The event loop told the end of the first one late.
  const late = [span(0, 'update', [0, 110]), span(1, 'update', [100, 200])];
  expect(measuredRun(late).rules.workers).toBe(1);
  const both = [span(0, 'update', [0, 100]), span(1, 'update', [5, 105])];
  expect(measuredRun(both).rules.workers).toBe(2);
});

it('tells steps apart, from the first one that was measured, and gives the host its time', () => {
  const spans = [
    span(0, 'compute', [0, 10], { step: 4 }),
    span(0, 'compute', [10, 30], { step: 5 }),
  ];
  const { seconds, rules } = measuredRun(spans, [{ operation: operation(0), step: 5, ms: 7 }]);
  expect([0, 1].map((step) => seconds(step, operation(0), 'compute'))).toEqual([0.01, 0.02]);
  expect([0, 1].map((step) => rules.hostSeconds?.(step, operation(0)))).toEqual([0, 0.007]);
});
