/**
 * @file Where weights and a sequence's cache live when nothing is trained.
 *
 * Device: what is homed there plus the largest need of any block. Host: what is homed there, staging
 * buffers and one row of logits. NVMe: the layout. Sums are upper bounds that the ledgers enforce.
 * Everything starts as far from the device as wishes and paths allow (a cache never on NVMe); then
 * weights, which each token reads whole, come nearer before caches, of which it reads what is filled.
 * Pure functions.
 */
import { alignUp, formatBytes } from '../../core/bytes.js';
import { SpillwayError } from '../../core/errors.js';
import { IO_ALIGNMENT, type ComputeDtype, type Tier } from '../../core/types.js';
import { MIN_STAGING, STAGING_BUFFER_BYTES } from '../../tiers/host/staging-pool.js';
import { layoutBytes, type LayoutRequest } from '../../tiers/nvme/layout.js';
import type { Block } from '../model/block.js';
import type { ForwardProfile } from './block-profile.js';
import type { ParameterLayout } from './parameter-layout.js';
import type { GroupHomes, OffloadDevice } from './placement.js';
import { chargedBytes, keepsBfloat16, tensorBytes } from './tensor-bytes.js';

/** What a plan for inference is made from. */
export interface InferencePlanInput {
  readonly blocks: readonly Block[];
  readonly layout: ParameterLayout;
  /** Profiles of all blocks, once per kind of work (evaluation, generation). */
  readonly workloads: readonly (readonly ForwardProfile[])[];
  /** Elements per position that each block keeps of a sequence, by cached tensor. */
  readonly cacheWidths: readonly (readonly number[])[];
  /** Positions of the longest sequence; 0 without generation. */
  readonly cacheLength: number;
  /** Host bytes of one row of logits; 0 without generation. */
  readonly logitsBytes: number;
  readonly budgets: Readonly<Record<Tier, number>>;
  readonly dtype: ComputeDtype;
  readonly offloadParam: OffloadDevice;
  readonly hostAddressableDevice: boolean;
  /** The device multiplies by bfloat16 matrices as they are. */
  readonly bf16Operands: boolean;
  /** Number of NVMe paths; 0 when there is none. */
  readonly nvmePathCount: number;
}

export interface InferencePlan {
  /** Homes by parameter group; only `param` is used. */
  readonly homes: readonly Readonly<GroupHomes>[];
  /** Home of what each block keeps of a sequence. */
  readonly cacheTiers: readonly ('device' | 'host')[];
  readonly stagingCount: number;
  readonly peakBytes: Readonly<Record<Tier, number>>;
  readonly nvmeRequest: LayoutRequest;
}

interface Decisions {
  params: Tier[];
  caches: ('device' | 'host')[];
  stagingCount: number;
}

/**
 * Decides the homes.
 *
 * @throws BUDGET_TOO_SMALL with the smallest budgets that work; CONFIG_INVALID for wishes that
 *   contradict the machine
 */
export function planInference(input: InferencePlanInput): InferencePlan {
  checkWish(input);
  const sums = new InferenceSums(input);
  const { budgets, layout, nvmePathCount, offloadParam } = input;
  const wished = { none: 'device', cpu: 'host', nvme: 'nvme', auto: undefined } as const;
  const far: Tier = wished[offloadParam] ?? (nvmePathCount > 0 ? 'nvme' : 'host');
  const decisions: Decisions = {
    params: layout.groups.map(() => far),
    caches: input.blocks.map(() => 'host'),
    stagingCount: MIN_STAGING.read,
  };
  const fits = (): boolean => {
    const peaks = sums.peaksOf(decisions);
    return (['device', 'host', 'nvme'] as const).every((tier) => peaks[tier] <= budgets[tier]);
  };
  const least = sums.peaksOf(decisions);
  if (input.hostAddressableDevice) relieveHost(input, sums, decisions);
  relieveFiles(input, sums, decisions);
  if (!fits()) throw refuse(input, least, sums.cacheBytes);
  const attempt = <T, K extends keyof T>(holder: T, key: K, value: T[K]): boolean => {
    const before = holder[key];
    holder[key] = value;
    if (fits()) return true;
    holder[key] = before;
    return false;
  };
  if (!attempt(decisions, 'stagingCount', 8)) attempt(decisions, 'stagingCount', 4);
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
    homes: decisions.params.map((param) => ({ param, grad: param, optimizer: param })),
    cacheTiers: decisions.caches,
    stagingCount: decisions.stagingCount,
    peakBytes: sums.peaksOf(decisions),
    nvmeRequest: sums.nvmeRequest(decisions),
  };
}

/** What the host has no room for goes to a device that the CPU addresses: caches, and without NVMe
 * weights. */
function relieveHost(input: InferencePlanInput, sums: InferenceSums, decisions: Decisions): void {
  const isOver = (): boolean => sums.peaksOf(decisions).host > input.budgets.host;
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
function relieveFiles(input: InferencePlanInput, sums: InferenceSums, decisions: Decisions): void {
  const { budgets, offloadParam, hostAddressableDevice } = input;
  if (offloadParam !== 'auto') return;
  const { params } = decisions;
  for (const tier of hostAddressableDevice ? (['host', 'device'] as const) : ['host' as const]) {
    for (const [index, home] of params.entries()) {
      if (sums.peaksOf(decisions).nvme <= budgets.nvme) return;
      if (home !== 'nvme') continue;
      params[index] = tier;
      if (sums.peaksOf(decisions)[tier] > budgets[tier]) params[index] = home;
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
  const { budgets, nvmePathCount, cacheLength } = input;
  const lines = (['device', 'host', 'nvme'] as const).flatMap((tier) => {
    if (needed[tier] <= budgets[tier]) return [];
    const hint = tier === 'host' && nvmePathCount === 0 ? ', or give nvme_path to spill to' : '';
    return [
      `${tier}_memory ${formatBytes(budgets[tier])} is too small; the smallest that works is ${needed[tier]} (${formatBytes(needed[tier])})${hint}`,
    ];
  });
  const cache =
    cacheLength === 0
      ? []
      : [`keys and values of ${cacheLength} tokens take ${formatBytes(cacheBytes)} of it`];
  return new SpillwayError('BUDGET_TOO_SMALL', [...lines, ...cache].join('; '), {
    neededDeviceBytes: needed.device,
    neededHostBytes: needed.host,
    neededNvmeBytes: needed.nvme,
    parameters: input.layout.parameterCount,
  });
}

/** Adds up, for given decisions, the most bytes that each tier holds. */
class InferenceSums {
  readonly #input: InferencePlanInput;
  /** Leased bytes of each block's cache. */
  readonly #caches: readonly number[];

  constructor(input: InferencePlanInput) {
    this.#input = input;
    this.#caches = input.cacheWidths.map((widths) =>
      widths.reduce((sum, width) => sum + alignUp(input.cacheLength * width * 4, IO_ALIGNMENT), 0),
    );
  }

  get cacheBytes(): number {
    return this.#caches.reduce((sum, bytes) => sum + bytes, 0);
  }

  peaksOf(decisions: Decisions): Record<Tier, number> {
    const { stagingCount } = decisions;
    const logits = alignUp(this.#input.logitsBytes, IO_ALIGNMENT);
    // Weights pass through those of writes while they are loaded.
    const buffers = stagingCount + MIN_STAGING.write;
    const fixed = buffers * STAGING_BUFFER_BYTES + logits;
    return {
      device: this.#resident(decisions, 'device') + this.#deviceTransient(decisions),
      host: this.#resident(decisions, 'host') + fixed,
      nvme: layoutBytes(this.nvmeRequest(decisions)),
    };
  }

  nvmeRequest({ params }: Decisions): LayoutRequest {
    const { layout, dtype, nvmePathCount } = this.#input;
    const states = layout.groups
      .filter((group) => params[group.index] === 'nvme')
      .flatMap((group) =>
        group.shards.map(({ id, length }) => {
          return { shard: id, state: 'param', elementCount: length, elementType: dtype } as const;
        }),
      );
    return { states, scratch: [], fileCount: Math.max(1, nvmePathCount), slots: 1 };
  }

  #resident({ params, caches }: Decisions, tier: Tier): number {
    const bytesPer = this.#input.dtype === 'float32' ? 4 : 2;
    const groups = this.#input.layout.groups.filter(({ index }) => params[index] === tier);
    const weights = groups.map(({ length }) => alignUp(length * bytesPer, IO_ALIGNMENT));
    const cached = this.#caches.filter((_, block) => caches[block] === tier);
    return [...weights, ...cached].reduce((sum, bytes) => sum + bytes, 0);
  }

  #deviceTransient(decisions: Decisions): number {
    const { blocks, workloads, cacheLength, cacheWidths } = this.#input;
    let most = 0;
    for (const [index, block] of blocks.entries()) {
      // A cache that is not on the device visits it.
      const visiting =
        decisions.caches[index] === 'device'
          ? 0
          : (cacheWidths[index] ?? []).reduce(
              (sum, width) => sum + tensorBytes(cacheLength * width),
              0,
            );
      for (const profiles of workloads) {
        const { widenedBytes, workBytes } = profiles[index] ?? { widenedBytes: 0, workBytes: 0 };
        const loaded = this.#loadedBytes(decisions, block);
        most = Math.max(most, loaded + widenedBytes + workBytes + visiting);
      }
    }
    return most;
  }

  /** Bytes of the parameters that a block loads whole; float32 ones on the device are there. */
  #loadedBytes({ params }: Decisions, block: Block): number {
    const { layout, dtype, bf16Operands } = this.#input;
    if (block.kind === 'row') return 0;
    return block.uses
      .filter((name) => block.kind !== 'tiled' || name !== block.tiledParam)
      .flatMap((name) => layout.params.get(name) ?? [])
      .filter(({ group }) => dtype !== 'float32' || params[group] !== 'device')
      .reduce((sum, { length, spec }) => {
        const isHalf = keepsBfloat16(spec.shape, dtype, bf16Operands);
        return sum + (isHalf ? chargedBytes(length * 2) : tensorBytes(length));
      }, 0);
  }
}
