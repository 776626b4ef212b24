/**
 * @file Where weights and a sequence's cache live when nothing is trained.
 *
 * Everything starts as far from the device as wishes and paths allow (a cache never on NVMe). Then come
 * slots, in which blocks are fetched ahead; micro-batches that share an evaluation's pass over the
 * weights; then weights, which each token reads whole, come nearer before caches, of which it reads what
 * is filled. Pure functions.
 */
import { formatBudget, formatBytes } from '../../core/bytes.js';
import { SpillwayError } from '../../core/errors.js';
import type { Tier } from '../../core/types.js';
import { MIN_STAGING } from '../../tiers/host/staging-pool.js';
import type { LayoutRequest } from '../../tiers/nvme/layout.js';
import {
  homesOf,
  InferenceNeed,
  type InferenceDecisions,
  type InferenceNeedInput,
} from './inference-need.js';
import type { GroupHomes, OffloadDevice } from './placement.js';
import type { RegionPlan } from './step-plan.js';

/** What a plan for inference is made from. */
export interface InferencePlanInput extends InferenceNeedInput {
  readonly budgets: Readonly<Record<Tier, number>>;
  readonly offloadParam: OffloadDevice;
  readonly hostAddressableDevice: boolean;
}

export interface InferencePlan {
  /** Homes by parameter group; only `param` is used. */
  readonly homes: readonly Readonly<GroupHomes>[];
  /** Home of what each block keeps of a sequence. */
  readonly cacheTiers: readonly ('device' | 'host')[];
  /** Elements per token of what it keeps, by cached tensor. */
  readonly cacheWidths: readonly (readonly number[])[];
  readonly stagingCount: number;
  /** Where the device's region puts what is fetched. */
  readonly region: RegionPlan;
  /** Micro-batches that are evaluated in one pass over the weights. */
  readonly evaluationBatches: number;
  readonly peakBytes: Readonly<Record<Tier, number>>;
  readonly nvmeRequest: LayoutRequest;
}

/** Most micro-batches of one pass: beyond, loading the weights is a small part of it. */
const MOST_EVALUATION_BATCHES = 8;

/**
 * Decides the homes.
 *
 * @throws BUDGET_TOO_SMALL with the smallest budgets that work; CONFIG_INVALID for wishes that
 *   contradict the machine
 */
export function planInference(input: InferencePlanInput): InferencePlan {
  checkWish(input);
  const need = new InferenceNeed(input);
  const { budgets, layout, nvmePathCount, offloadParam } = input;
  const wished = { none: 'device', cpu: 'host', nvme: 'nvme', auto: undefined } as const;
  const far: Tier = wished[offloadParam] ?? (nvmePathCount > 0 ? 'nvme' : 'host');
  const decisions: InferenceDecisions = {
    params: layout.groups.map(() => far),
    caches: input.blocks.map(() => 'host'),
    stagingCount: MIN_STAGING.read,
    paramSlots: 1,
    activationSlots: 1,
    tileSlots: 1,
    tilesApart: false,
    rowsApart: false,
    evaluationBatches: 1,
  };
  const fits = (): boolean => {
    const peaks = need.peaksOf(decisions);
    return (['device', 'host', 'nvme'] as const).every((tier) => peaks[tier] <= budgets[tier]);
  };
  const least = need.peaksOf(decisions);
  if (input.hostAddressableDevice) relieveHost(input, need, decisions);
  relieveFiles(input, need, decisions);
  if (!fits()) throw refuse(input, least, need.cacheBytes);
  const attempt = <T, K extends keyof T>(holder: T, key: K, value: T[K]): boolean => {
    const before = holder[key];
    holder[key] = value;
    if (fits()) return true;
    holder[key] = before;
    return false;
  };
  /** Takes the first of some changes that fits. */
  const choose = (...changes: readonly Partial<InferenceDecisions>[]): boolean =>
    changes.some((change) => {
      const before = { ...decisions };
      Object.assign(decisions, change);
      if (fits()) return true;
      Object.assign(decisions, before);
      return false;
    });
  choose({ stagingCount: 8 }, { stagingCount: 4 });
  // What lets fetches run beside compute comes first: it costs little and hides much.
  choose({ paramSlots: 2, tileSlots: 2 }, { paramSlots: 2 });
  choose({ activationSlots: 2, rowsApart: true }, { rowsApart: true });
  choose({ tilesApart: true, tileSlots: 2 }, { tileSlots: 2 });
  choose({ paramSlots: 3 });
  for (let batches = MOST_EVALUATION_BATCHES; batches > 1 && input.evaluation; batches /= 2) {
    if (choose({ evaluationBatches: batches })) break;
  }
  if (offloadParam === 'auto') {
    for (const index of decisions.params.keys()) {
      if (decisions.params[index] === 'device') continue;
      const near = input.hostAddressableDevice && attempt(decisions.params, index, 'device');
      if (!near && decisions.params[index] === 'nvme') attempt(decisions.params, index, 'host');
    }
  }
  if (input.hostAddressableDevice) {
    for (const index of decisions.caches.keys()) attempt(decisions.caches, index, 'device');
  }
  return {
    homes: homesOf(decisions),
    cacheTiers: decisions.caches,
    cacheWidths: need.cacheWidths,
    stagingCount: decisions.stagingCount,
    region: need.regionOf(decisions),
    evaluationBatches: decisions.evaluationBatches,
    peakBytes: need.peaksOf(decisions),
    nvmeRequest: need.nvmeRequest(decisions),
  };
}

/** What the host has no room for goes to a device that the CPU addresses: caches, and without NVMe
 * weights. */
function relieveHost(
  input: InferencePlanInput,
  need: InferenceNeed,
  decisions: InferenceDecisions,
): void {
  const isOver = (): boolean => need.peaksOf(decisions).host > input.budgets.host;
  for (const index of decisions.caches.keys()) {
    if (!isOver()) return;
    decisions.caches[index] = 'device';
  }
  if (input.nvmePathCount > 0 || input.offloadParam !== 'auto') return;
  for (const index of decisions.params.keys()) {
    if (!isOver()) return;
    decisions.params[index] = 'device';
  }
}

/** Weights that the files have no room for go where there is some: to the host, else to a device
 * that the CPU addresses. */
function relieveFiles(
  input: InferencePlanInput,
  need: InferenceNeed,
  decisions: InferenceDecisions,
): void {
  const { budgets, offloadParam, hostAddressableDevice } = input;
  if (offloadParam !== 'auto') return;
  const { params } = decisions;
  for (const tier of hostAddressableDevice ? (['host', 'device'] as const) : ['host' as const]) {
    for (const [index, home] of params.entries()) {
      if (need.peaksOf(decisions).nvme <= budgets.nvme) return;
      if (home !== 'nvme') continue;
      params[index] = tier;
      if (need.peaksOf(decisions)[tier] > budgets[tier]) params[index] = home;
    }
  }
}

function checkWish({ offloadParam, nvmePathCount, hostAddressableDevice }: InferencePlanInput) {
  if (offloadParam === 'nvme' && nvmePathCount === 0) {
    throw new SpillwayError('CONFIG_INVALID', `offload_param.device is nvme; give nvme_path too`);
  }
  if (offloadParam === 'none' && !hostAddressableDevice) {
    throw new SpillwayError(
      'CONFIG_INVALID',
      `offload_param.device is none, but this device's memory is not addressable by the CPU; use cpu, nvme or auto`,
    );
  }
}

function refuse(
  input: InferencePlanInput,
  needed: Readonly<Record<Tier, number>>,
  cacheBytes: number,
): SpillwayError {
  const { budgets, nvmePathCount, sequence } = input;
  const lines = (['device', 'host', 'nvme'] as const).flatMap((tier) => {
    if (needed[tier] <= budgets[tier]) return [];
    const hint = tier === 'host' && nvmePathCount === 0 ? ', or give nvme_path to spill to' : '';
    return [
      `${tier}_memory ${formatBytes(budgets[tier])} is too small; the smallest that works is ${needed[tier]} (${formatBudget(needed[tier])})${hint}`,
    ];
  });
  const cache =
    sequence === undefined
      ? []
      : [`keys and values of ${sequence.limit} tokens take ${formatBytes(cacheBytes)} of it`];
  return new SpillwayError('BUDGET_TOO_SMALL', [...lines, ...cache].join('; '), {
    neededDeviceBytes: needed.device,
    neededHostBytes: needed.host,
    neededNvmeBytes: needed.nvme,
    parameters: input.layout.parameterCount,
  });
}
