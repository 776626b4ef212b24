/**
 * @file Durations of operations from what a run's spans show, for `simulateWith`.
 *
 * Pieces on a link may wait for one another after they began; each is charged the time by which it
 * ended after the one before it on its link, or after its own begin.
 */
import type { Lane } from '../../core/types.js';
import type { OperationId } from './step-plan.js';
import type { LaneSeconds, SimulationRules } from './simulate.js';

/** Spans that overlap by less follow one another: clocks are read between other callbacks. */
const TOUCHING_MS = 1;

/** An operation, or a piece of one on a link, as it ran; milliseconds. */
export interface MeasuredSpan {
  readonly operation: { readonly id: OperationId };
  readonly lane: Lane;
  /** One-based number of its step; those of a run follow one another. */
  readonly step: number;
  readonly start: number;
  readonly end: number;
}

/** What a run's spans say: seconds per operation and lane, and how many updates ran at once. */
export interface MeasuredRun {
  readonly seconds: LaneSeconds;
  readonly rules: SimulationRules;
}

/** @param spans of a run of steps, in any order */
export function measuredRun(spans: readonly MeasuredSpan[]): MeasuredRun {
  const seconds = new Map<string, number>();
  const lastEnds = new Map<Lane, number>();
  const first = spans.reduce((least, { step }) => Math.min(least, step), Infinity);
  for (const { operation, lane, step, start, end } of [...spans].sort((a, b) => a.end - b.end)) {
    const isLink = lane !== 'compute' && lane !== 'update';
    const begin = isLink ? Math.max(start, lastEnds.get(lane) ?? -Infinity) : start;
    lastEnds.set(lane, end);
    const key = `${step - first}/${lane}/${operation.id}`;
    seconds.set(key, (seconds.get(key) ?? 0) + Math.max(0, end - begin) / 1000);
  }
  return {
    seconds: (step, operation, lane) => seconds.get(`${step}/${lane}/${operation.id}`) ?? 0,
    rules: { workers: mostAtOnce(spans.filter(({ lane }) => lane === 'update')) },
  };
}

/** The most spans that overlap; those that only touch do not. */
function mostAtOnce(spans: readonly MeasuredSpan[]): number {
  const events = spans.flatMap(({ start, end }) => [
    { at: start + TOUCHING_MS, change: 1 },
    { at: end, change: -1 },
  ]);
  let now = 0;
  let most = 1;
  for (const { change } of events.sort((a, b) => a.at - b.at || a.change - b.change)) {
    now += change;
    most = Math.max(most, now);
  }
  return most;
}
