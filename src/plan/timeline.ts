/**
 * @file A simulated run of steps: when each operation ran, what the lanes were busy with, and what
 * that says about a steady step. All times in seconds from the run's start.
 */
import { LANES, type Lane } from '../../core/types.js';
import type { StepPlan } from './step-plan.js';

/** One step as it was simulated. */
export interface SimulatedStep {
  readonly plan: StepPlan;
  readonly start: number;
  /** Everything but the updates was over. */
  readonly finished: number;
  readonly updated: number;
  /** By operation: when it began to run, compute or move, and when it was over. */
  readonly starts: Float64Array;
  readonly ends: Float64Array;
  /** Seconds in which a lane moved or computed for this step; `update` is arithmetic, per worker. */
  readonly busySeconds: Readonly<Record<Lane, number>>;
}

/** What a simulation says. */
export interface Timeline {
  readonly steps: readonly SimulatedStep[];
  /** Until the last update is over. */
  readonly seconds: number;
  /** Of all steps. */
  readonly busySeconds: Readonly<Record<Lane, number>>;
  /** From the end of the last step but one to that of the last; the whole time of a single one. */
  readonly stepSeconds: number;
  /** The lane that is busy longest in the last step. */
  readonly limitedBy: Lane;
  /** Share of the time in which updates run, those of the last step excepted, that compute runs too;
   * 1 without updates, undefined for a single step. */
  readonly hiddenUpdateShare: number | undefined;
  /** Of the last step. */
  readonly nvmeWrittenBytes: number;
}

/** Adds up simulated steps; at least one. */
export function timelineOf(steps: readonly SimulatedStep[]): Timeline {
  const last = steps.at(-1)!;
  const before = steps.at(-2);
  const busy = LANES.map((lane) => [lane, sum(steps, (step) => step.busySeconds[lane])] as const);
  return {
    steps,
    seconds: steps.reduce((most, { updated }) => Math.max(most, updated), 0),
    busySeconds: Object.fromEntries(busy) as Record<Lane, number>,
    stepSeconds: before === undefined ? last.updated : last.finished - before.finished,
    limitedBy: LANES.reduce((a, b) => (last.busySeconds[b] > last.busySeconds[a] ? b : a)),
    hiddenUpdateShare: before === undefined ? undefined : hiddenShare(steps),
    nvmeWrittenBytes: sum(last.plan.operations, ({ bytes }) => bytes.nvme_write ?? 0),
  };
}

function sum<T>(items: readonly T[], of: (item: T) => number): number {
  return items.reduce((total, item) => total + of(item), 0);
}

type Interval = readonly [start: number, end: number];

function hiddenShare(steps: readonly SimulatedStep[]): number {
  const updates = merged(steps.slice(0, -1).flatMap((step) => intervals(step, 'update')));
  const compute = merged(steps.flatMap((step) => intervals(step, 'compute')));
  const total = sum(updates, ([start, end]) => end - start);
  return total === 0 ? 1 : overlap(updates, compute) / total;
}

function intervals({ plan, starts, ends }: SimulatedStep, lane: Lane): Interval[] {
  const found: Interval[] = [];
  for (const operation of plan.operations) {
    if (operation.lane !== lane) continue;
    const [start, end] = [starts[operation.id]!, ends[operation.id]!];
    if (end > start) found.push([start, end]);
  }
  return found;
}

/** The same times, apart and ascending. */
function merged(all: Interval[]): Interval[] {
  const apart: [number, number][] = [];
  for (const [start, end] of all.sort((a, b) => a[0] - b[0])) {
    const last = apart.at(-1);
    if (last !== undefined && start <= last[1]) last[1] = Math.max(last[1], end);
    else apart.push([start, end]);
  }
  return apart;
}

/** Time in both; each apart and ascending. */
function overlap(some: readonly Interval[], others: readonly Interval[]): number {
  let total = 0;
  let first = 0;
  for (const [start, end] of some) {
    while (first < others.length && others[first]![1] <= start) first += 1;
    for (let at = first; at < others.length && others[at]![0] < end; at += 1) {
      total += Math.min(end, others[at]![1]) - Math.max(start, others[at]![0]);
    }
  }
  return total;
}
