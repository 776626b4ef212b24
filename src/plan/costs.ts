/**
 * @file What a step costs on a machine: seconds per byte of each link, per compute operation, per
 * element of AdamW. Measured by `spillway tune`, else conservative defaults.
 *
 * Pure functions.
 */
import type { Link } from '../../core/types.js';
import type { ComputeWork } from './compute-work.js';
import { PIECE_BYTES } from './simulated-link.js';
import type { LaneSeconds, SimulationRules } from './simulate.js';
import type { Compute, Operation } from './step-plan.js';
import type { TransferWork } from './transfer-work.js';

/** A link alone: so many bytes per second, and the time that it loses with each piece. */
export interface LinkCost {
  readonly bytesPerSecond: number;
  readonly secondsPerPiece: number;
}

/** The main thread's passes over gradients, in bytes of them per second. */
export interface HostCosts {
  /** Norm leaves, of what has just come. */
  readonly checkedBytesPerSecond: number;
  /** Additions to what is there. */
  readonly addedBytesPerSecond: number;
}

/** The optimizer's workers, all together. */
export interface UpdateCosts {
  /** States in memory. */
  readonly updateElementsPerSecond: number;
  /** Of each shard, handing it over. Default 0. */
  readonly updateSecondsPerShard?: number;
  /** Bytes read and written of states on NVMe, disk and arithmetic together. Default: as fast as the
   * links and the arithmetic allow. */
  readonly updateNvmeBytesPerSecond?: number;
}

/** What `simulate` predicts by. */
export interface StepCosts extends SimulationRules, UpdateCosts {
  readonly links: Readonly<Record<Link, LinkCost>>;
  readonly computeSeconds: (operation: Operation) => number;
  /** Default: transfers move what crosses links, and nothing else. */
  readonly transferWork?: (operation: Operation) => TransferWork;
}

/** A compute operation that was measured, or one like it. */
export interface MeasuredCompute extends ComputeWork {
  readonly seconds: number;
  /** Of the main thread, until its kernels were launched. */
  readonly launchSeconds: number;
}

/** What is known of a machine and a disk; `spillway tune` keeps it. */
export interface MachineCosts extends UpdateCosts {
  readonly links: Readonly<Record<Link, LinkCost>>;
  readonly nvmeSharing: number;
  readonly host: HostCosts;
  readonly compute: readonly MeasuredCompute[];
  /** Where nothing is measured. */
  readonly multiplyAddsPerSecond: number;
  readonly launchSeconds: number;
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
  host: { checkedBytesPerSecond: 8e9, addedBytesPerSecond: 4e9 },
  updateElementsPerSecond: 1e9,
  launchSeconds: 1e-3,
  compute: [],
  multiplyAddsPerSecond: 25e9,
};

/** Products of tfjs's cpu device, in plain JavaScript: 0.8 GFLOP/s. */
export const CPU_MULTIPLY_ADDS_PER_SECOND = 0.4e9;

/** How a step runs beside what its machine costs. */
export interface StepRules extends SimulationRules {
  readonly workOf: (action: Compute) => ComputeWork;
  readonly transferWork?: (operation: Operation) => TransferWork;
}

/** Costs of the steps of one plan. */
export function stepCosts(machine: MachineCosts, { workOf, ...rules }: StepRules): StepCosts {
  const { compute, host, links, nvmeSharing, multiplyAddsPerSecond, launchSeconds, ...update } =
    machine;
  const workSeconds = computeSeconds(compute, multiplyAddsPerSecond, launchSeconds);
  const hostSeconds = (operation: Operation): number => {
    if (operation.lane === 'compute') {
      return workSeconds(workOf(operation.action as Compute)).launchSeconds;
    }
    const { checkedBytes, addedBytes } = rules.transferWork?.(operation) ?? NO_HOST_WORK;
    return checkedBytes / host.checkedBytesPerSecond + addedBytes / host.addedBytesPerSecond;
  };
  return {
    ...rules,
    ...update,
    links,
    nvmeSharing,
    hostSeconds: (_step, operation) => hostSeconds(operation),
    computeSeconds: ({ action }) => workSeconds(workOf(action as Compute)).seconds,
  };
}

const NO_HOST_WORK = { checkedBytes: 0, addedBytes: 0 };

/** Seconds of operations and lanes by costs. */
export function laneSeconds(costs: StepCosts): LaneSeconds {
  return (_step, operation, lane) => {
    if (lane === 'compute') return costs.computeSeconds(operation);
    if (lane === 'update') return updateSeconds(operation, costs);
    return transferSeconds(operation, lane, costs);
  };
}

/** Seconds in which a link moves what an operation moves, piece by piece. */
function transferSeconds(operation: Operation, link: Link, costs: StepCosts): number {
  const crossing = operation.bytes[link] ?? 0;
  if (crossing === 0 && link !== 'upload') return 0;
  const work = costs.transferWork?.(operation);
  const local = link === 'upload' ? (work?.localBytes ?? 0) : 0;
  const bytes = crossing + local;
  if (bytes === 0) return 0;
  const { bytesPerSecond, secondsPerPiece } = costs.links[link];
  const isDevice = link === 'upload' || link === 'download';
  const pieces = isDevice ? work?.pieces : undefined;
  return bytes / bytesPerSecond + (pieces ?? Math.ceil(bytes / PIECE_BYTES)) * secondsPerPiece;
}

/** Arithmetic on what is in memory; what streams from NVMe and back takes at least as long as that. */
function updateSeconds({ action, bytes }: Operation, costs: UpdateCosts): number {
  if (action.kind !== 'update') return 0;
  const { updateElementsPerSecond, updateSecondsPerShard = 0 } = costs;
  const { updateNvmeBytesPerSecond = Infinity } = costs;
  const streamed = (bytes.nvme_read ?? 0) + (bytes.nvme_write ?? 0);
  const arithmetic = action.length / updateElementsPerSecond;
  return updateSecondsPerShard + Math.max(arithmetic, streamed / updateNvmeBytesPerSecond);
}

/** Times of one compute operation. */
type ComputeTimes = Pick<MeasuredCompute, 'seconds' | 'launchSeconds'>;

/**
 * Seconds of compute work. As measured for its key; else by the rate at which the measured operation
 * nearest in size ran of those of its kind, of all where none is of its kind, and launched as that.
 */
function computeSeconds(
  compute: readonly MeasuredCompute[],
  multiplyAddsPerSecond: number,
  launchSeconds: number,
): (work: ComputeWork) => ComputeTimes {
  const byKey = new Map(compute.map((one) => [one.key, one]));
  // Equal operations share one work (compute-work.ts).
  const known = new Map<ComputeWork, ComputeTimes>();
  const estimate = (work: ComputeWork): ComputeTimes => {
    const exact = byKey.get(work.key);
    if (exact !== undefined) {
      const share = work.microBatches / exact.microBatches;
      return { seconds: exact.seconds * share, launchSeconds: exact.launchSeconds * share };
    }
    const alike = compute.filter(({ kind }) => kind === work.kind);
    const like = nearest(alike.length > 0 ? alike : compute, work.multiplyAdds);
    if (like === undefined) {
      return { seconds: work.multiplyAdds / multiplyAddsPerSecond, launchSeconds };
    }
    const seconds = (work.multiplyAdds / like.multiplyAdds) * like.seconds;
    return { seconds, launchSeconds: like.launchSeconds };
  };
  return (work) => {
    let times = known.get(work);
    if (times === undefined) known.set(work, (times = estimate(work)));
    return times;
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
