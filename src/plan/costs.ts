/**
 * @file What a step costs on a machine: seconds per byte of each link, per compute operation, per
 * element of AdamW. Measured by `spillway tune`, else conservative defaults.
 *
 * Pure functions.
 */
import type { Link } from '../../core/types.js';
import type { ComputeWork } from './compute-work.js';
import { PIECE_BYTES } from './simulated-link.js';
import type { SimulationRules } from './simulate.js';
import type { Compute, Operation } from './step-plan.js';

/** A link alone: so many bytes per second, and the time that it loses with each piece. */
export interface LinkCost {
  readonly bytesPerSecond: number;
  readonly secondsPerPiece: number;
}

/** What `simulate` predicts by. */
export interface StepCosts extends SimulationRules {
  readonly links: Readonly<Record<Link, LinkCost>>;
  readonly computeSeconds: (operation: Operation) => number;
  /** Of one worker while all work, states in memory. */
  readonly updateElementsPerSecond: number;
}

/** A compute operation that was measured, or one like it. */
export interface MeasuredCompute extends ComputeWork {
  readonly seconds: number;
}

/** What is known of a machine and a disk; `spillway tune` keeps it. */
export interface MachineCosts {
  readonly links: Readonly<Record<Link, LinkCost>>;
  readonly nvmeSharing: number;
  readonly updateElementsPerSecond: number;
  readonly launchSeconds: number;
  readonly compute: readonly MeasuredCompute[];
  /** Where nothing is measured. */
  readonly multiplyAddsPerSecond: number;
}

/**
 * Costs where nothing was measured; of the figures of one machine the lower ones: O_DIRECT without
 * huge pages (read 1.2, write 2.9, mixed 1.6 GB/s: a disk that reads or writes), torch's products on
 * one thread (50 GFLOP/s), half of AdamW's rate, and copies as over a narrow PCIe link.
 */
export const DEFAULT_COSTS: MachineCosts = {
  links: {
    upload: { bytesPerSecond: 5e9, secondsPerPiece: 2e-5 },
    download: { bytesPerSecond: 5e9, secondsPerPiece: 2e-5 },
    nvme_read: { bytesPerSecond: 1.2e9, secondsPerPiece: 0 },
    nvme_write: { bytesPerSecond: 2.9e9, secondsPerPiece: 0 },
  },
  nvmeSharing: 1,
  updateElementsPerSecond: 1e9,
  launchSeconds: 1e-3,
  compute: [],
  multiplyAddsPerSecond: 25e9,
};

/** Products of tfjs's cpu device, in plain JavaScript: 0.8 GFLOP/s. */
export const CPU_MULTIPLY_ADDS_PER_SECOND = 0.4e9;

/** Seconds in which a link moves `bytes`, piece by piece. */
export function transferSeconds(bytes: number, link: LinkCost): number {
  return bytes / link.bytesPerSecond + Math.ceil(bytes / PIECE_BYTES) * link.secondsPerPiece;
}

/** How a step runs beside what its machine costs. */
export interface StepRules extends SimulationRules {
  readonly workOf: (action: Compute) => ComputeWork;
}

/** Costs of the steps of one plan. */
export function stepCosts(machine: MachineCosts, { workOf, ...rules }: StepRules): StepCosts {
  const secondsOf = computeSeconds(machine);
  return {
    ...rules,
    links: machine.links,
    nvmeSharing: machine.nvmeSharing,
    launchSeconds: machine.launchSeconds,
    updateElementsPerSecond: machine.updateElementsPerSecond,
    computeSeconds: ({ action }) => secondsOf(workOf(action as Compute)),
  };
}

/**
 * Seconds of compute work. As measured for its key; else by the rate at which the measured operation
 * nearest in size ran of those of its kind, of all where none is of its kind.
 */
function computeSeconds({
  compute,
  multiplyAddsPerSecond,
}: MachineCosts): (work: ComputeWork) => number {
  const byKey = new Map(compute.map((one) => [one.key, one]));
  const known = new Map<string, number>();
  const estimate = (work: ComputeWork): number => {
    const exact = byKey.get(work.key);
    if (exact !== undefined) return (exact.seconds / exact.microBatches) * work.microBatches;
    const alike = compute.filter(({ kind }) => kind === work.kind);
    const like = nearest(alike.length > 0 ? alike : compute, work.multiplyAdds);
    const rate = like === undefined ? multiplyAddsPerSecond : like.multiplyAdds / like.seconds;
    return work.multiplyAdds / rate;
  };
  return (work) => {
    const key = `${work.key}*${work.microBatches}`;
    let seconds = known.get(key);
    if (seconds === undefined) known.set(key, (seconds = estimate(work)));
    return seconds;
  };
}

function nearest(
  some: readonly MeasuredCompute[],
  multiplyAdds: number,
): MeasuredCompute | undefined {
  const distance = (one: MeasuredCompute): number =>
    Math.abs(Math.log(one.multiplyAdds / multiplyAdds));
  return some.reduce<MeasuredCompute | undefined>(
    (best, one) => (best === undefined || distance(one) < distance(best) ? one : best),
    undefined,
  );
}
