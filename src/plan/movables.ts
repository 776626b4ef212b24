/**
 * @file What a memory plan may bring nearer to the device, the most useful first: activation
 * checkpoints, sums of tied parameters, parameters, gradients, optimizer states.
 */
import type { Tier } from '../../core/types.js';
import type { PeakBytes } from './peak-bytes.js';
import type { GroupHomes, MemoryPlanInput } from './placement.js';

/** Something whose tier the plan decides. */
export interface Movable {
  /** Where it is now. */
  readonly tier: Tier;
  /** Where it may be besides, nearest first. */
  readonly tiers: readonly Tier[];
  move(tier: Tier): void;
}

const NEAR: readonly Tier[] = ['device', 'host'];
const HOST: readonly Tier[] = ['host'];
const DEVICE: readonly Tier[] = ['device'];

/** All of them, in order of preference; `tier` is read when it is their turn. */
export function* movables(input: MemoryPlanInput, peaks: PeakBytes): Generator<Movable> {
  const { activationTiers, accumulatorTiers } = peaks.decisions;
  // The newest activation checkpoints are used first.
  for (let block = activationTiers.length - 1; block >= 0; block -= 1) {
    const places = activationTiers[block]!;
    for (let slot = places.length - 1; slot >= 0; slot -= 1) {
      const move = (tier: Tier): void => {
        peaks.moveActivation(block, slot, tier);
      };
      yield { tier: places[slot]!, tiers: NEAR, move };
    }
  }
  for (const [index, tier] of accumulatorTiers.entries()) {
    const move = (to: Tier): void => {
      peaks.moveAccumulator(index, to);
    };
    yield { tier, tiers: HOST, move };
  }
  const home = (group: number, state: keyof GroupHomes, tiers: readonly Tier[]): Movable =>
    homeOf(peaks, group, state, tiers);
  const groups = input.layout.groups.map(({ index }) => index);
  if (input.offloadParam === 'auto') {
    const tiers = input.hostAddressableDevice ? NEAR : HOST;
    for (const group of spread(groups)) yield home(group, 'param', tiers);
  }
  // Where the optimizer is forced to NVMe, gradients are there only where they spill to.
  if (input.offloadOptimizer === 'auto' || input.offloadOptimizer === 'nvme') {
    for (const group of groups) yield home(group, 'grad', HOST);
  }
  if (input.offloadOptimizer === 'auto') {
    for (const group of groups) yield home(group, 'optimizer', HOST);
  }
}

/** States that a device may hold which the CPU addresses; better there than nowhere. */
export function* statesForDevice(input: MemoryPlanInput, peaks: PeakBytes): Generator<Movable> {
  if (!input.hostAddressableDevice) return;
  const { offloadParam, offloadOptimizer } = input;
  for (const state of ['param', 'grad', 'optimizer'] as const) {
    if ((state === 'param' ? offloadParam : offloadOptimizer) !== 'auto') continue;
    for (const { index } of input.layout.groups) yield homeOf(peaks, index, state, DEVICE);
  }
}

function homeOf(
  peaks: PeakBytes,
  group: number,
  state: keyof GroupHomes,
  tiers: readonly Tier[],
): Movable {
  const move = (tier: Tier): void => {
    peaks.moveHome(group, state, tier);
  };
  return { tier: peaks.decisions.homes[group]![state], tiers, move };
}

/** The items in an order that spreads evenly over them, whatever number is taken: first to last by
 * bit-reversed position. */
function spread<T>(items: readonly T[]): T[] {
  const bits = Math.ceil(Math.log2(Math.max(2, items.length)));
  const reversed = (index: number): number => {
    let result = 0;
    for (let bit = 0; bit < bits; bit += 1) if (index & (1 << bit)) result |= 1 << (bits - 1 - bit);
    return result;
  };
  const places = Array.from({ length: 2 ** bits }, (_, index) => reversed(index));
  return places.flatMap((place) => (place < items.length ? [items[place]!] : []));
}
