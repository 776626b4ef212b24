/**
 * @file Where the time of a step went: how long each lane worked, how much of that compute hid, and
 * what compute waited for. Times in microseconds.
 */
import { LANES, type Lane } from '../../core/types.js';
import { commonLength, gaps, lengthOf, union } from './intervals.js';
import type { ReportedStall, ReportedTrace } from './read-trace.js';

/** What a lane did in the window. */
export interface LaneAccount {
  readonly lane: Lane;
  /** In which it worked. */
  readonly busy: number;
  /** Of these, beside compute. */
  readonly hidden: number;
  /** In which compute stood still because of it. */
  readonly kept: number;
  readonly bytes: number;
  /** In which it works by the plan; undefined without a prediction. */
  readonly predicted: number | undefined;
}

/** What the time of a step was spent on; together they are the whole step. */
export type Spending = Lane | 'host' | 'between' | 'end';

/** Something that compute waited for, by name. */
export interface Wait {
  readonly name: string;
  readonly count: number;
  readonly total: number;
  readonly longest: number;
}

export interface StepAccount {
  readonly length: number;
  /** Lanes that work, or were predicted to. */
  readonly lanes: readonly LaneAccount[];
  /** Longest first, those of no length left out; `compute` works, all others kept it. */
  readonly spent: readonly { readonly on: Spending; readonly length: number }[];
  /** Longest first. */
  readonly waits: readonly Wait[];
  /** Whether an update began while backward still computed. */
  readonly updatesEarly: boolean;
  /** Length of the predicted step. */
  readonly predicted: number | undefined;
}

/** What an account is of. */
export type AccountedTrace = Pick<ReportedTrace, 'window' | 'slices' | 'stalls' | 'predicted'>;

/** Accounts for a step. */
export function accountOf(trace: AccountedTrace): StepAccount {
  const { window, slices, stalls, predicted } = trace;
  const length = window.end - window.start;
  const compute = union(slices.compute);
  const spent = spendings(trace, lengthOf(gaps(window, compute)));
  const kept = new Map(spent.map(({ on, length: share }) => [on, share]));
  const lanes = LANES.map((lane) => {
    const covered = union(slices[lane]);
    return {
      lane,
      busy: lengthOf(covered),
      hidden: commonLength(covered, compute),
      kept: lane === 'compute' ? 0 : (kept.get(lane) ?? 0),
      bytes: slices[lane].reduce((sum, { bytes }) => sum + bytes, 0),
      predicted: predicted && predictedOf(predicted, lane),
    };
  });
  return {
    length,
    lanes: lanes.filter(({ busy, predicted: plan = 0 }) => busy > 0 || plan > 0),
    spent,
    waits: waitsOf(stalls),
    updatesEarly: updatesEarly(slices),
    predicted: predicted && predicted.window.end - predicted.window.start,
  };
}

/** Updates overlap, and those of two steps meet in a window: what is drawn counts. */
function predictedOf(
  { slices, busySeconds }: NonNullable<ReportedTrace['predicted']>,
  lane: Lane,
): number {
  const seconds = busySeconds[lane];
  return seconds === undefined ? lengthOf(union(slices[lane])) : seconds * 1e6;
}

/** Updates of the step before end before backward begins; its own may begin beside backward. */
function updatesEarly({ compute, update }: ReportedTrace['slices']): boolean {
  const backward = compute.filter(({ phase }) => phase === 'backward');
  const first = backward.reduce((least, { start }) => Math.min(least, start), Infinity);
  const last = backward.reduce((most, { start }) => Math.max(most, start), -Infinity);
  return update.some(({ start }) => start > first && start < last);
}

/** @param still time in which compute stood still */
function spendings(
  { slices, stalls, window }: AccountedTrace,
  still: number,
): StepAccount['spent'] {
  const lengths = new Map<Spending, number>();
  lengths.set('compute', window.end - window.start - still);
  let told = 0;
  for (const stall of stalls) {
    const on = spendingOf(stall);
    const length = stall.end - stall.start;
    told += length;
    lengths.set(on, (lengths.get(on) ?? 0) + length);
  }
  // Compute that ends before the step does is followed by no compute that could say why.
  const last = slices.compute.reduce((end, slice) => Math.max(end, slice.end), window.start);
  const isEnd = stalls.every(({ end }) => end <= last);
  const rest = still - told;
  if (rest > 0) {
    const on = isEnd ? 'end' : 'host';
    lengths.set(on, (lengths.get(on) ?? 0) + rest);
  }
  return [...lengths]
    .map(([on, length]) => ({ on, length }))
    .filter(({ length }) => length > 0)
    .sort((a, b) => b.length - a.length);
}

function spendingOf({ lane, name }: ReportedStall): Spending {
  if (lane !== undefined) return lane;
  return name === 'between steps' ? 'between' : 'host';
}

function waitsOf(stalls: readonly ReportedStall[]): Wait[] {
  const byName = new Map<string, { name: string; count: number; total: number; longest: number }>();
  for (const { name, start, end } of stalls) {
    const wait = byName.get(name) ?? { name, count: 0, total: 0, longest: 0 };
    wait.count += 1;
    wait.total += end - start;
    wait.longest = Math.max(wait.longest, end - start);
    byName.set(name, wait);
  }
  return [...byName.values()].sort((a, b) => b.total - a.total);
}
