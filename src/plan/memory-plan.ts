/**
 * @file Where everything lives: homes of states, places of activation checkpoints, peaks per tier.
 *
 * `planMemory` makes decisions one after the other and keeps each that fits: `PeakBytes` adds up, for
 * the decisions so far, the most bytes that each tier holds at any time. Order of preference when
 * memory is short: head passes in one wave, activation checkpoints, parameters, gradients,
 * optimizer states; nearest tier first. What cannot fit is refused with the arithmetic.
 *
 * Pure functions; the numbers are upper bounds that the ledgers enforce.
 */
import { formatBytes } from '../../core/bytes.js';
import { SpillwayError } from '../../core/errors.js';
import { type Tier } from '../../core/types.js';
import { MIN_STAGING } from '../../tiers/host/staging-pool.js';
import { PREFERRED_STAGING_DEPTH } from '../optim/staging.js';
import type { Choices, Decisions } from './decisions.js';
import { DeviceNeed } from './device-need.js';
import { nvmeRequest } from './nvme-request.js';
import { PeakBytes, type PlanSizes } from './peak-bytes.js';
import {
  useAccumulatorsOf,
  type GroupHomes,
  type MemoryPlan,
  type MemoryPlanInput,
  type MicroBatchOrder,
  type OffloadDevice,
} from './placement.js';
import { StateSizes } from './state-sizes.js';

/** What to plan for in any order. */
type UnorderedInput = Omit<MemoryPlanInput, 'order'>;

function forcedHome(offload: OffloadDevice): Tier | undefined {
  switch (offload) {
    case 'none':
      return 'device';
    case 'cpu':
      return 'host';
    case 'nvme':
      return 'nvme';
    case 'auto':
      return undefined;
  }
}

/** Decisions with everything as far from the device as wishes and paths allow. */
function farthest({ input, need, accumulators }: PlanSizes): Decisions {
  const far: Tier = input.nvmePathCount > 0 ? 'nvme' : 'host';
  const optimizer = forcedHome(input.offloadOptimizer) ?? far;
  return {
    headWave: 1,
    homes: input.layout.groups.map(() => ({
      param: forcedHome(input.offloadParam) ?? far,
      optimizer,
      // Gradients follow a forced optimizer home, except that NVMe is only where they spill to.
      grad: optimizer === 'nvme' ? far : optimizer,
    })),
    activationTiers: input.blocks.map((_, block) =>
      block === 0 ? [] : Array.from({ length: need.slotCount }, () => far),
    ),
    accumulatorTiers: accumulators.map(() => far),
    paramSlots: 1,
    activationSlots: need.leastActivationSlots,
    tileSlots: 1,
    tilesApart: false,
    spillLag: 0,
    stagingCount: MIN_STAGING.read,
    spillStagingCount: MIN_STAGING.write,
    optimizerDepth: 1,
  };
}

function refuse(input: UnorderedInput, needed: Record<Tier, number>): SpillwayError {
  const { budgets } = input;
  const lines: string[] = [];
  if (needed.device > budgets.device) {
    lines.push(
      `device_memory ${formatBytes(budgets.device)} is too small; the smallest that works is ${needed.device} (${formatBytes(needed.device)})`,
    );
  }
  if (needed.host > budgets.host) {
    const hint = input.nvmePathCount === 0 ? ', or give nvme_path to spill to' : '';
    lines.push(
      `host_memory ${formatBytes(budgets.host)} is too small; the smallest that works is ${needed.host} (${formatBytes(needed.host)})${hint}`,
    );
  }
  if (needed.nvme > budgets.nvme) {
    lines.push(
      `nvme_memory ${formatBytes(budgets.nvme)} is too small; the smallest that works is ${needed.nvme} (${formatBytes(needed.nvme)})`,
    );
  }
  return new SpillwayError('BUDGET_TOO_SMALL', lines.join('; '), {
    neededDeviceBytes: needed.device,
    neededHostBytes: needed.host,
    neededNvmeBytes: needed.nvme,
    parameters: input.layout.parameterCount,
  });
}

/** Refuses wishes that no budget can grant. */
function checkWishes(input: UnorderedInput): void {
  const wishes = { offload_param: input.offloadParam, offload_optimizer: input.offloadOptimizer };
  for (const [key, wish] of Object.entries(wishes)) {
    if (wish === 'nvme' && input.nvmePathCount === 0) {
      throw new SpillwayError('CONFIG_INVALID', `${key}.device is nvme; give nvme_path too`);
    }
    if (wish === 'none' && !input.hostAddressableDevice) {
      throw new SpillwayError(
        'CONFIG_INVALID',
        `${key}.device is none, but this device's memory is not addressable by the CPU; use cpu, nvme or auto`,
      );
    }
  }
}

/** Without NVMe, states that the host has no room for go to a device that the CPU addresses. */
function moveToDevice({ input }: PlanSizes, peaks: PeakBytes): void {
  if (input.nvmePathCount > 0 || !input.hostAddressableDevice) return;
  const wishes = {
    param: input.offloadParam,
    grad: input.offloadOptimizer,
    optimizer: input.offloadOptimizer,
  };
  for (const state of ['param', 'grad', 'optimizer'] as const) {
    if (wishes[state] !== 'auto') continue;
    for (const { index } of input.layout.groups) {
      if (peaks.bytes.host <= input.budgets.host) return;
      peaks.moveHome(index, state, 'device');
    }
  }
}

/**
 * Decides the homes of all states and the places of activation checkpoints.
 *
 * `auto` is the vertical order, which moves fewer bytes, unless only the horizontal one fits.
 *
 * @throws BUDGET_TOO_SMALL with the smallest budgets that work; CONFIG_INVALID for wishes that
 *   contradict the machine
 */
export function planMemory(
  input: UnorderedInput & { readonly order: MicroBatchOrder | 'auto' },
): MemoryPlan {
  checkWishes(input);
  const states = new StateSizes(input.layout, input.dtype);
  const orders = ordersOf(input).map((order) => sizesOf({ ...input, order }, states));
  const minimumBytes = orders.map(leastPeaks).reduce(smaller);
  for (const sizes of orders) {
    const plan = planInOrder(sizes);
    if (plan !== undefined) return { ...plan, minimumBytes };
  }
  throw refuse(input, minimumBytes);
}

/** The orders that may be taken, by preference. */
function ordersOf(input: {
  readonly order: MicroBatchOrder | 'auto';
  readonly microBatchCount: number;
}): readonly MicroBatchOrder[] {
  if (input.order !== 'auto') return [input.order];
  return input.microBatchCount === 1 ? ['vertical'] : ['vertical', 'horizontal'];
}

function sizesOf(input: MemoryPlanInput, states: StateSizes): PlanSizes {
  const { blocks, layout, order, microBatchCount } = input;
  const accumulators = useAccumulatorsOf(blocks, layout, order, microBatchCount);
  return { input, states, need: new DeviceNeed(input), accumulators };
}

/** The peaks with everything as far from the device as it may be. */
function leastPeaks(sizes: PlanSizes): Record<Tier, number> {
  return new PeakBytes(sizes, farthest(sizes)).bytes;
}

/** The one that asks for less memory or, of equal memory, for fewer bytes of files. */
function smaller(a: Record<Tier, number>, b: Record<Tier, number>): Record<Tier, number> {
  const difference = b.device + b.host - (a.device + a.host);
  return difference < 0 || (difference === 0 && b.nvme < a.nvme) ? b : a;
}

/** The plan in one order, or undefined where nothing fits. */
function planInOrder(sizes: PlanSizes): Omit<MemoryPlan, 'minimumBytes'> | undefined {
  const { input, need, accumulators } = sizes;
  const peaks = new PeakBytes(sizes, farthest(sizes));
  moveToDevice(sizes, peaks);
  if (!peaks.fits) return undefined;
  chooseSlots(sizes, peaks);
  choosePlaces(sizes, peaks);
  const dense = input.blocks.filter((block) => block.kind === 'dense').length;
  for (let slots = peaks.decisions.paramSlots + 1; slots <= dense; slots += 1) {
    if (!chooseFirst(peaks, { paramSlots: slots })) break;
  }
  const { decisions } = peaks;
  return {
    order: input.order,
    homes: decisions.homes,
    activationTiers: decisions.activationTiers,
    headWave: decisions.headWave,
    useAccumulators: accumulators.map((use, index) => ({
      ...use,
      tier: decisions.accumulatorTiers[index] ?? 'host',
    })),
    region: need.regionOf(decisions),
    spillLag: decisions.spillLag,
    stagingCount: decisions.stagingCount,
    spillStagingCount: decisions.spillStagingCount,
    optimizerDepth: decisions.optimizerDepth,
    nvmeStates: peaks.nvmeStates,
    peakBytes: peaks.bytes,
    nvmeRequest: nvmeRequest(input, decisions, accumulators, (block) => need.slotBytes(block)),
  };
}

/** Takes the first of some changes that fits; says whether one did. */
function chooseFirst(peaks: PeakBytes, ...changes: readonly Partial<Choices>[]): boolean {
  const before = { ...peaks.decisions };
  return changes.some((change) => {
    peaks.choose(change);
    if (peaks.fits) return true;
    const keys = Object.keys(change) as (keyof Choices)[];
    peaks.choose(Object.fromEntries(keys.map((key) => [key, before[key]])));
    return false;
  });
}

/** What lets transfers run beside compute comes first: it costs little and hides much. */
function chooseSlots({ need }: PlanSizes, peaks: PeakBytes): void {
  chooseFirst(
    peaks,
    { stagingCount: 4, spillStagingCount: 4 },
    { stagingCount: 2, spillStagingCount: 3 },
  );
  chooseFirst(
    peaks,
    { paramSlots: 2, spillLag: 1, tileSlots: 2 },
    { paramSlots: 2, tileSlots: 2 },
    { paramSlots: 2 },
  );
  chooseFirst(peaks, { activationSlots: need.leastActivationSlots + 1 });
  chooseFirst(peaks, { tilesApart: true, tileSlots: 2 }, { tileSlots: 2 });
  chooseFirst(peaks, { paramSlots: Math.max(3, peaks.decisions.paramSlots) });
  chooseFirst(peaks, { optimizerDepth: PREFERRED_STAGING_DEPTH }, { optimizerDepth: 2 });
  for (let wave = need.slotCount; wave > 1; wave -= 1) {
    if (chooseFirst(peaks, { headWave: wave })) break;
  }
}

/** Brings what there is room for nearer: checkpoints, then parameters, then optimizer states. */
function choosePlaces({ input }: PlanSizes, peaks: PeakBytes): void {
  const { activationTiers, accumulatorTiers, homes } = peaks.decisions;
  /** Moves something to the first tier that has room and is nearer than its own. */
  const bring = (before: Tier, tiers: readonly Tier[], move: (tier: Tier) => void): void => {
    for (const tier of tiers) {
      if (before === tier || before === 'device') return;
      move(tier);
      if (peaks.fits) return;
      move(before);
    }
  };
  const near: readonly Tier[] = ['device', 'host'];
  // The newest activation checkpoints are used first.
  for (let block = activationTiers.length - 1; block >= 0; block -= 1) {
    const tiers = activationTiers[block]!;
    for (let slot = tiers.length - 1; slot >= 0; slot -= 1) {
      bring(tiers[slot]!, near, (tier) => {
        peaks.moveActivation(block, slot, tier);
      });
    }
  }
  for (const [index, before] of accumulatorTiers.entries()) {
    bring(before, ['host'], (tier) => {
      peaks.moveAccumulator(index, tier);
    });
  }
  const bringHome = (group: number, state: keyof GroupHomes, tiers: readonly Tier[]): void => {
    bring(homes[group]![state], tiers, (tier) => {
      peaks.moveHome(group, state, tier);
    });
  };
  const groups = input.layout.groups.map(({ index }) => index);
  if (input.offloadParam === 'auto') {
    const tiers = input.hostAddressableDevice ? near : (['host'] as const);
    for (const group of spread(groups)) bringHome(group, 'param', tiers);
  }
  if (input.offloadOptimizer === 'auto' || input.offloadOptimizer === 'nvme') {
    for (const group of groups) bringHome(group, 'grad', ['host']);
  }
  if (input.offloadOptimizer === 'auto') {
    for (const group of groups) bringHome(group, 'optimizer', ['host']);
  }
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
