/**
 * @file Where everything lives: homes of states, places of activation checkpoints, peaks per tier.
 *
 * `planMemory` makes decisions one after the other and keeps each that fits: `peaksOf` adds up,
 * for given decisions, the most bytes that each tier holds at any time. Order of preference when
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
import { PeakBytes, type Decisions } from './peak-bytes.js';
import type { MemoryPlan, MemoryPlanInput, OffloadDevice, MicroBatchOrder } from './placement.js';
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

function fits(peaks: Record<Tier, number>, budgets: Readonly<Record<Tier, number>>): boolean {
  return peaks.device <= budgets.device && peaks.host <= budgets.host && peaks.nvme <= budgets.nvme;
}

/** Decisions with everything as far from the device as wishes and paths allow. */
function farthest(input: MemoryPlanInput, planner: PeakBytes): Decisions {
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
      block === 0 ? [] : Array.from({ length: planner.slotCount }, () => far),
    ),
    accumulatorTiers: planner.accumulators.map(() => far),
    paramSlots: 1,
    activationSlots: planner.leastActivationSlots,
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
function moveToDevice(input: MemoryPlanInput, planner: PeakBytes, decisions: Decisions): void {
  if (input.nvmePathCount > 0 || !input.hostAddressableDevice) return;
  const wishes = {
    param: input.offloadParam,
    grad: input.offloadOptimizer,
    optimizer: input.offloadOptimizer,
  };
  for (const state of ['param', 'grad', 'optimizer'] as const) {
    if (wishes[state] !== 'auto') continue;
    for (const homes of decisions.homes) {
      if (planner.peaksOf(decisions).host <= input.budgets.host) return;
      homes[state] = 'device';
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
  const inputs = ordersOf(input).map((order) => ({ ...input, order }));
  const states = new StateSizes(input.layout, input.dtype);
  const minimumBytes = inputs.map((one) => leastPeaks(one, states)).reduce(smaller);
  for (const one of inputs) {
    const plan = planInOrder(one, states);
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

/** The peaks with everything as far from the device as it may be. */
function leastPeaks(input: MemoryPlanInput, states: StateSizes): Record<Tier, number> {
  const planner = new PeakBytes(input, states);
  return planner.peaksOf(farthest(input, planner));
}

/** The one that asks for less memory or, of equal memory, for fewer bytes of files. */
function smaller(a: Record<Tier, number>, b: Record<Tier, number>): Record<Tier, number> {
  const difference = b.device + b.host - (a.device + a.host);
  return difference < 0 || (difference === 0 && b.nvme < a.nvme) ? b : a;
}

/** The plan in one order, or undefined where nothing fits. */
function planInOrder(
  input: MemoryPlanInput,
  states: StateSizes,
): Omit<MemoryPlan, 'minimumBytes'> | undefined {
  const planner = new PeakBytes(input, states);
  const decisions = farthest(input, planner);
  moveToDevice(input, planner, decisions);
  if (!fits(planner.peaksOf(decisions), input.budgets)) return undefined;

  /** Makes the change if the budgets allow it. */
  const attempt = (apply: () => void, undo: () => void): boolean => {
    apply();
    if (fits(planner.peaksOf(decisions), input.budgets)) return true;
    undo();
    return false;
  };
  /** Takes the first of some changes that fits. */
  const choose = (...changes: readonly Partial<Decisions>[]): boolean =>
    changes.some((change) => {
      const before = { ...decisions };
      return attempt(
        () => Object.assign(decisions, change),
        () => Object.assign(decisions, before),
      );
    });
  const attemptTier = <K extends string | number>(
    holder: Record<K, Tier>,
    key: K,
    tiers: readonly Tier[],
  ): void => {
    for (const tier of tiers) {
      const before = holder[key];
      if (before === tier || before === 'device') return;
      if (
        attempt(
          () => (holder[key] = tier),
          () => (holder[key] = before),
        )
      )
        return;
    }
  };

  // What lets transfers run beside compute comes first: it costs little and hides much.
  choose({ stagingCount: 4, spillStagingCount: 4 }, { stagingCount: 2, spillStagingCount: 3 });
  choose(
    { paramSlots: 2, spillLag: 1, tileSlots: 2 },
    { paramSlots: 2, tileSlots: 2 },
    { paramSlots: 2 },
  );
  choose({ activationSlots: planner.leastActivationSlots + 1 });
  choose({ tilesApart: true, tileSlots: 2 }, { tileSlots: 2 });
  choose({ paramSlots: Math.max(3, decisions.paramSlots) });
  choose({ optimizerDepth: PREFERRED_STAGING_DEPTH });
  for (let wave = planner.slotCount; wave > 1; wave -= 1) {
    if (choose({ headWave: wave })) break;
  }
  const near: readonly Tier[] = ['device', 'host'];
  // The newest activation checkpoints are used first.
  for (const tiers of decisions.activationTiers.toReversed()) {
    for (let slot = tiers.length - 1; slot >= 0; slot -= 1) {
      attemptTier(tiers as Record<number, Tier>, slot, near);
    }
  }
  for (let index = 0; index < decisions.accumulatorTiers.length; index += 1) {
    attemptTier(decisions.accumulatorTiers as Record<number, Tier>, index, ['host']);
  }
  if (input.offloadParam === 'auto') {
    const tiers: readonly Tier[] = input.hostAddressableDevice ? near : ['host'];
    for (const homes of spread(decisions.homes)) attemptTier(homes, 'param', tiers);
  }
  if (input.offloadOptimizer === 'auto' || input.offloadOptimizer === 'nvme') {
    for (const homes of decisions.homes) attemptTier(homes, 'grad', ['host']);
  }
  if (input.offloadOptimizer === 'auto') {
    for (const homes of decisions.homes) attemptTier(homes, 'optimizer', ['host']);
  }
  const dense = input.blocks.filter((block) => block.kind === 'dense').length;
  for (let slots = decisions.paramSlots + 1; slots <= dense; slots += 1) {
    if (!choose({ paramSlots: slots })) break;
  }
  return {
    order: input.order,
    homes: decisions.homes,
    activationTiers: decisions.activationTiers,
    headWave: decisions.headWave,
    useAccumulators: planner.accumulators.map((use, index) => ({
      ...use,
      tier: decisions.accumulatorTiers[index] ?? 'host',
    })),
    region: planner.regionOf(decisions),
    spillLag: decisions.spillLag,
    stagingCount: decisions.stagingCount,
    spillStagingCount: decisions.spillStagingCount,
    optimizerDepth: decisions.optimizerDepth,
    nvmeStates: planner.nvmeStates(decisions),
    peakBytes: planner.peaksOf(decisions),
    nvmeRequest: planner.nvmeRequest(decisions),
  };
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
