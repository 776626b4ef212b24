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
import { formatBudget, formatBytes } from '../../core/bytes.js';
import { SpillwayError } from '../../core/errors.js';
import { type Tier } from '../../core/types.js';
import { PREFERRED_STAGING_DEPTH } from '../optim/staging.js';
import type { Choices } from './decisions.js';
import { DeviceNeed } from './device-need.js';
import { movables } from './movables.js';
import { nvmeRequest } from './nvme-request.js';
import { PeakBytes, type PlanSizes } from './peak-bytes.js';
import {
  useAccumulatorsOf,
  type MemoryPlan,
  type MemoryPlanInput,
  type MicroBatchOrder,
} from './placement.js';
import { farthest, startPlacement } from './start-placement.js';
import { StateSizes } from './state-sizes.js';

/** What to plan for in any order. */
type UnorderedInput = Omit<MemoryPlanInput, 'order'>;

function refuse(input: UnorderedInput, needed: Record<Tier, number>): SpillwayError {
  const { budgets } = input;
  const lines: string[] = [];
  if (needed.device > budgets.device) {
    lines.push(
      `device_memory ${formatBytes(budgets.device)} is too small; the smallest that works is ${needed.device} (${formatBudget(needed.device)})`,
    );
  }
  if (needed.host > budgets.host) {
    const hint = input.nvmePathCount === 0 ? ', or give nvme_path to spill to' : '';
    lines.push(
      `host_memory ${formatBytes(budgets.host)} is too small; the smallest that works is ${needed.host} (${formatBudget(needed.host)})${hint}`,
    );
  }
  if (needed.nvme > budgets.nvme) {
    lines.push(
      `nvme_memory ${formatBytes(budgets.nvme)} is too small; the smallest that works is ${needed.nvme} (${formatBudget(needed.nvme)}), or less with more host_memory`,
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

/**
 * The peaks with everything as far from the device as it may be. Of a small model that is memory:
 * buffers to stage what is in files would take more.
 */
function leastPeaks(sizes: PlanSizes): Record<Tier, number> {
  const far = new PeakBytes(sizes, farthest(sizes)).bytes;
  if (sizes.input.nvmePathCount === 0) return far;
  return smaller(far, new PeakBytes(sizes, farthest(sizes, 'host')).bytes);
}

/** The one that asks for less memory or, of equal memory, for fewer bytes of files. */
function smaller(a: Record<Tier, number>, b: Record<Tier, number>): Record<Tier, number> {
  const difference = b.device + b.host - (a.device + a.host);
  return difference < 0 || (difference === 0 && b.nvme < a.nvme) ? b : a;
}

/** The plan in one order, or undefined where nothing fits. */
function planInOrder(sizes: PlanSizes): Omit<MemoryPlan, 'minimumBytes'> | undefined {
  const { input, need, accumulators } = sizes;
  const peaks = startPlacement(sizes);
  if (peaks === undefined) return undefined;
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

/** Brings what there is room for nearer, each thing to the nearest tier that has room. */
function choosePlaces({ input }: PlanSizes, peaks: PeakBytes): void {
  for (const thing of movables(input, peaks)) {
    const { tier: before } = thing;
    for (const tier of thing.tiers) {
      if (before === tier || before === 'device') break;
      thing.move(tier);
      if (peaks.fits) break;
      thing.move(before);
    }
  }
}
