/**
 * @file Durations of operations from what a run's spans show, for `simulateWith`.
 *
 * Pieces on a link may wait for one another after they began; each is charged the time by which it
 * ended after the one before it on its link, or after its own begin. Updates of a lone worker are
 * charged the handing over in the same way.
 */
import type { Lane } from '../../core/types.js';
import type { OperationId } from './step-plan.js';
import type { LaneSeconds, SimulationRules } from './simulate.js';

/** An operation, or a piece of one on a link, as it ran; milliseconds. */
export interface MeasuredSpan {
  readonly operation: { readonly id: OperationId };
  readonly lane: Lane;
  /** One-based number of its step; those of a run follow one another. */
  readonly step: number;
  readonly start: number;
  readonly end: number;
  /** When what an update waited for was over. */
  readonly readyAt?: number;
}

/** What the host did for an operation beside its spans; milliseconds. */
export interface MeasuredHostWork {
  readonly operation: { readonly id: OperationId };
  readonly step: number;
  readonly ms: number;
}

/** What a run's spans say: seconds per operation and lane, and how many updates ran at a time. */
export interface MeasuredRun {
  readonly seconds: LaneSeconds;
  readonly rules: SimulationRules;
}

/**
 * @param spans of a run of steps, in any order
 * @param hostWork of the same steps
 */
export function measuredRun(
  spans: readonly MeasuredSpan[],
  hostWork: readonly MeasuredHostWork[] = [],
): MeasuredRun {
  const seconds = new Map<string, number>();
  const workers = usuallyAtOnce(spans.filter(({ lane }) => lane === 'update'));
  const lastEnds = new Map<Lane, number>();
  const first = spans.reduce((least, { step }) => Math.min(least, step), Infinity);
  for (const span of [...spans].sort((a, b) => a.end - b.end)) {
    const { operation, lane, step, start, end, readyAt = start } = span;
    const takesTurns = lane !== 'compute' && (lane !== 'update' || workers === 1);
    const begin = takesTurns ? Math.max(readyAt, lastEnds.get(lane) ?? -Infinity) : start;
    lastEnds.set(lane, end);
    const key = `${step - first}/${lane}/${operation.id}`;
    seconds.set(key, (seconds.get(key) ?? 0) + Math.max(0, end - begin) / 1000);
  }
  const host = new Map(
    hostWork.map(({ operation, step, ms }) => [`${step - first}/${operation.id}`, ms / 1000]),
  );
  return {
    seconds: (step, operation, lane) => seconds.get(`${step}/${lane}/${operation.id}`) ?? 0,
    rules: { workers, hostSeconds: (step, { id }) => host.get(`${step}/${id}`) ?? 0 },
  };
}

/** How many spans run at a time, on average over the time in which any does. A finished update is
 * told late where the event loop is busy, so that two of one worker may seem to overlap. */
function usuallyAtOnce(spans: readonly MeasuredSpan[]): number {
  let all = 0;
  let any = 0;
  let until = -Infinity;
  for (const { start, end } of [...spans].sort((a, b) => a.start - b.start)) {
    all += end - start;
    any += Math.max(0, end - Math.max(start, until));
    until = Math.max(until, end);
  }
  return any === 0 ? 1 : Math.max(1, Math.round(all / any));
}
