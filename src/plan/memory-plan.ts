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
import { alignUp, formatBytes } from '../../core/bytes.js';
import { SpillwayError } from '../../core/errors.js';
import { IO_ALIGNMENT, type ComputeDtype, type StateName, type Tier } from '../../core/types.js';
import { MIN_STAGING_BUFFERS, STAGING_BUFFER_BYTES } from '../../tiers/host/staging-pool.js';
import { layoutBytes, type LayoutRequest } from '../../tiers/nvme/layout.js';
import type { Block } from '../model/block.js';
import type { StagingDepth } from '../optim/staging.js';
import type { BlockProfile } from './block-profile.js';
import type { ParamAddress, ParameterGroup, ParameterLayout } from './parameter-layout.js';

export type MicroBatchOrder = 'vertical' | 'horizontal';

/** A wish for the home of some states; `auto` lets the plan choose. DeepSpeed's words. */
export type OffloadDevice = 'none' | 'cpu' | 'nvme' | 'auto';

/** Home tier of each kind of state of one parameter group. */
export interface GroupHomes {
  param: Tier;
  grad: Tier;
  /** exp_avg, exp_avg_sq and master_lo. */
  optimizer: Tier;
}

/** A second (third, …) use of a tied parameter, which in horizontal order sums on its own. */
export interface UseAccumulator {
  readonly param: ParamAddress;
  readonly block: number;
}

export interface MemoryPlanInput {
  readonly blocks: readonly Block[];
  readonly layout: ParameterLayout;
  readonly profiles: readonly BlockProfile[];
  readonly budgets: Readonly<Record<Tier, number>>;
  readonly dtype: ComputeDtype;
  /** Most micro-batches per step. */
  readonly microBatchCount: number;
  readonly order: MicroBatchOrder;
  readonly offloadParam: OffloadDevice;
  readonly offloadOptimizer: OffloadDevice;
  readonly hostAddressableDevice: boolean;
  /** Number of NVMe paths; 0 when there is none. */
  readonly nvmePathCount: number;
  /** Rows x columns x 4 of each row gather, at the largest batch. */
  readonly rowGatherBytes: readonly number[];
  readonly workers: number;
  /** Host bytes that the optimizer pool leases. */
  readonly optimizerStagingBytes: (depth: StagingDepth, nvmeStates: readonly StateName[]) => number;
}

export interface MemoryPlan {
  readonly order: MicroBatchOrder;
  readonly homes: readonly Readonly<GroupHomes>[];
  /** Tier of the input of block b for micro-batch m: `[b][m]`; empty for block 0. */
  readonly activationTiers: readonly (readonly Tier[])[];
  /** Micro-batches whose head passes share one reading of the tiles. */
  readonly headWave: number;
  readonly useAccumulators: readonly (UseAccumulator & { readonly tier: Tier })[];
  readonly stagingCount: number;
  readonly optimizerDepth: StagingDepth;
  /** States of which some trainable shard is on NVMe. */
  readonly nvmeStates: readonly StateName[];
  readonly peakBytes: Readonly<Record<Tier, number>>;
  readonly nvmeRequest: LayoutRequest;
}

interface Decisions {
  headWave: number;
  homes: GroupHomes[];
  activationTiers: Tier[][];
  accumulatorTiers: Tier[];
  stagingCount: number;
  optimizerDepth: StagingDepth;
}

/** States of a trainable group and the home that decides each; frozen groups have `param` only. */
export function statesOf(group: ParameterGroup, dtype: ComputeDtype): StateName[] {
  if (!group.trainable) return ['param'];
  const states: StateName[] = ['param', 'grad', 'exp_avg', 'exp_avg_sq'];
  return dtype === 'bfloat16' ? [...states, 'master_lo'] : states;
}

/** Element type in which `state` is stored. */
export function stateType(
  state: StateName,
  dtype: ComputeDtype,
): 'float32' | 'bfloat16' | 'uint16' {
  if (state === 'param') return dtype;
  return state === 'master_lo' ? 'uint16' : 'float32';
}

/** Home tier of `state` of a group. */
export function homeOf(homes: Readonly<GroupHomes>, state: StateName): Tier {
  if (state === 'param') return homes.param;
  return state === 'grad' ? homes.grad : homes.optimizer;
}

function stateBytes(group: ParameterGroup, state: StateName, dtype: ComputeDtype): number {
  return group.length * (stateType(state, dtype) === 'float32' ? 4 : 2);
}

/** Name of the scratch region of an activation slot, and of a use accumulator. */
export const scratchName = {
  activation: (block: number, microBatch: number) => `activation/${block}/${microBatch}`,
  accumulator: (param: string, block: number) => `accumulator/${param}/${block}`,
};

/** Uses of trainable parameters that need accumulators of their own in horizontal order: all but
 * the highest use of each, row gathers excepted (they sum in row buffers). */
export function useAccumulatorsOf(
  blocks: readonly Block[],
  layout: ParameterLayout,
  order: MicroBatchOrder,
  microBatchCount: number,
): UseAccumulator[] {
  if (order === 'vertical' || microBatchCount === 1) return [];
  return [...layout.params.values()].flatMap((param) => {
    if (param.spec.trainable === false) return [];
    const users = (layout.users.get(param.spec.name) ?? []).filter(
      (block) => blocks[block]?.kind !== 'row',
    );
    return users.slice(0, -1).map((block) => ({ param, block }));
  });
}

function maxOf(values: readonly number[]): number {
  return values.reduce((most, value) => Math.max(most, value), 0);
}

class Planner {
  readonly #input: MemoryPlanInput;
  readonly #accumulators: readonly UseAccumulator[];
  /** Activation slots per block: every micro-batch in vertical order, one in horizontal. */
  readonly slotCount: number;

  constructor(input: MemoryPlanInput) {
    this.#input = input;
    this.slotCount = input.order === 'vertical' ? input.microBatchCount : 1;
    const { blocks, layout, order, microBatchCount } = input;
    this.#accumulators = useAccumulatorsOf(blocks, layout, order, microBatchCount);
  }

  get accumulators(): readonly UseAccumulator[] {
    return this.#accumulators;
  }

  /** Bytes of one activation slot of block `block`: the output of the block before. */
  slotBytes(block: number): number {
    return this.#input.profiles[block - 1]?.outputBytes ?? 0;
  }

  peaksOf(decisions: Decisions): Record<Tier, number> {
    return {
      device: this.#resident(decisions, 'device') + this.#deviceTransient(decisions),
      host: this.#resident(decisions, 'host') + this.#hostFixed(decisions),
      nvme: layoutBytes(this.nvmeRequest(decisions)),
    };
  }

  nvmeRequest(decisions: Decisions): LayoutRequest {
    const { layout, dtype, nvmePathCount } = this.#input;
    const states = layout.groups.flatMap((group) =>
      statesOf(group, dtype)
        .filter((state) => homeOf(homesAt(decisions, group.index), state) === 'nvme')
        .flatMap((state) =>
          group.shards.map((shard) => ({
            shard: shard.id,
            state,
            elementCount: shard.length,
            elementType: stateType(state, dtype),
          })),
        ),
    );
    const activations = decisions.activationTiers.flatMap((tiers, block) =>
      tiers.flatMap((tier, microBatch) =>
        tier === 'nvme'
          ? [
              {
                name: scratchName.activation(block, microBatch),
                elementCount: this.slotBytes(block) / 4,
              },
            ]
          : [],
      ),
    );
    const accumulators = this.#accumulators.flatMap(({ param, block }, index) =>
      decisions.accumulatorTiers[index] === 'nvme'
        ? [{ name: scratchName.accumulator(param.spec.name, block), elementCount: param.length }]
        : [],
    );
    return {
      states,
      scratch: [...activations, ...accumulators].map((region) => ({
        ...region,
        elementType: 'float32' as const,
      })),
      fileCount: Math.max(1, nvmePathCount),
      slots: 1,
    };
  }

  /** States of which some trainable shard is on NVMe. */
  nvmeStates(decisions: Decisions): StateName[] {
    const { layout, dtype } = this.#input;
    const trainable = layout.groups.filter((group) => group.trainable);
    const names = new Set(
      trainable.flatMap((group) =>
        statesOf(group, dtype).filter(
          (state) => homeOf(homesAt(decisions, group.index), state) === 'nvme',
        ),
      ),
    );
    return [...names].sort();
  }

  #resident(decisions: Decisions, tier: Tier): number {
    const { layout, dtype } = this.#input;
    // In memory one lease holds a group's state; leases are rounded up to the alignment.
    let bytes = 0;
    for (const group of layout.groups) {
      for (const state of statesOf(group, dtype)) {
        if (homeOf(homesAt(decisions, group.index), state) !== tier) continue;
        bytes += alignUp(stateBytes(group, state, dtype), IO_ALIGNMENT);
      }
    }
    for (const [block, tiers] of decisions.activationTiers.entries()) {
      const slot = this.slotBytes(block);
      const charged = tier === 'host' ? alignUp(slot, IO_ALIGNMENT) : slot;
      bytes += tiers.filter((place) => place === tier).length * charged;
    }
    for (const [index, { param }] of this.#accumulators.entries()) {
      if (decisions.accumulatorTiers[index] === tier)
        bytes += alignUp(param.length * 4, IO_ALIGNMENT);
    }
    return bytes;
  }

  /** Staging buffers, the optimizer's, and the row gradients of the whole batch and of one
   * micro-batch. */
  #hostFixed(decisions: Decisions): number {
    const { rowGatherBytes, microBatchCount, optimizerStagingBytes } = this.#input;
    const buffers = microBatchCount > 1 ? microBatchCount + 1 : 1;
    const rows = rowGatherBytes.reduce(
      (sum, bytes) =>
        sum +
        alignUp(bytes * (buffers - 1 || 1), IO_ALIGNMENT) +
        (buffers > 1 ? alignUp(bytes, IO_ALIGNMENT) : 0),
      0,
    );
    return (
      decisions.stagingCount * STAGING_BUFFER_BYTES +
      optimizerStagingBytes(decisions.optimizerDepth, this.nvmeStates(decisions)) +
      rows
    );
  }

  #deviceTransient(decisions: Decisions): number {
    return maxOf(
      this.#input.blocks.map((block, index) =>
        block.kind === 'tiled'
          ? this.#tiledTransient(decisions, index)
          : this.#blockTransient(decisions, block, index),
      ),
    );
  }

  /** Bytes of the parameters that a block loads whole, and of the largest and all gradients. */
  #wholeParams(
    decisions: Decisions,
    block: Block,
  ): { loaded: number; grads: number; largest: number } {
    const { layout, dtype } = this.#input;
    if (block.kind === 'row') return { loaded: 0, grads: 0, largest: 0 };
    const addresses = block.uses
      .filter((name) => block.kind !== 'tiled' || name !== block.tiledParam)
      .flatMap((name) => layout.params.get(name) ?? []);
    const isAliased = (param: ParamAddress): boolean =>
      dtype === 'float32' && homesAt(decisions, param.group).param === 'device';
    const sum = (some: readonly ParamAddress[]): number =>
      some.reduce((bytes, param) => bytes + param.length * 4, 0);
    const trainable = addresses.filter((param) => param.spec.trainable !== false);
    return {
      loaded: sum(addresses.filter((param) => !isAliased(param))),
      grads: sum(trainable),
      largest: maxOf(trainable.map((param) => param.length * 4)),
    };
  }

  #blockTransient(decisions: Decisions, block: Block, index: number): number {
    const profile = profileAt(this.#input.profiles, index);
    const params = this.#wholeParams(decisions, block);
    const input = this.slotBytes(index);
    const held = params.loaded + profile.fieldBytes + profile.rowBytes + input;
    const isLast = index === this.#input.blocks.length - 1;
    const forward = held + profile.forwardBytes;
    // In vertical order the sum of the micro-batches' gradients is on the device as well.
    const sums = this.slotCount > 1 ? params.grads : 0;
    const adding = this.slotCount > 1 ? 2 * params.grads + params.largest + input : 0;
    const dy = isLast ? 0 : profile.outputBytes;
    return Math.max(forward, held + dy + Math.max(profile.reverseBytes + sums, adding));
  }

  #tiledTransient(decisions: Decisions, index: number): number {
    const profile = profileAt(this.#input.profiles, index);
    const { tiled } = profile;
    const block = this.#input.blocks[index];
    if (tiled === undefined || block === undefined) return 0;
    const params = this.#wholeParams(decisions, block);
    const wave = decisions.headWave;
    const input = this.slotBytes(index);
    const perMicroBatch = profile.fieldBytes + 2 * tiled.preparedBytes + tiled.carryBytes;
    const held = params.loaded + wave * perMicroBatch;
    const sumTile = wave > 1 ? 2 * tiled.tileBytes : 0;
    const sumWhole = wave > 1 ? params.grads + params.largest : 0;
    return (
      held +
      maxOf([
        input + tiled.prepareBytes,
        tiled.tileBytes + tiled.forwardTileBytes,
        tiled.endBytes,
        tiled.tileBytes + tiled.backwardTileBytes + sumTile,
        input + tiled.prepareReverseBytes + sumWhole,
      ])
    );
  }
}

function homesAt(decisions: Decisions, group: number): GroupHomes {
  const homes = decisions.homes[group];
  if (homes === undefined) throw new SpillwayError('INTERNAL', `group ${group} has no homes`);
  return homes;
}

function profileAt(profiles: readonly BlockProfile[], index: number): BlockProfile {
  const profile = profiles[index];
  if (profile === undefined) throw new SpillwayError('INTERNAL', `block ${index} has no profile`);
  return profile;
}

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
function farthest(input: MemoryPlanInput, planner: Planner): Decisions {
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
    stagingCount: MIN_STAGING_BUFFERS,
    optimizerDepth: 1,
  };
}

function refuse(input: MemoryPlanInput, needed: Record<Tier, number>): SpillwayError {
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
function checkWishes(input: MemoryPlanInput): void {
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
function moveToDevice(input: MemoryPlanInput, planner: Planner, decisions: Decisions): void {
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
 * @throws BUDGET_TOO_SMALL with the smallest budgets that work; CONFIG_INVALID for wishes that
 *   contradict the machine
 */
export function planMemory(input: MemoryPlanInput): MemoryPlan {
  checkWishes(input);
  const planner = new Planner(input);
  const decisions = farthest(input, planner);
  const least = planner.peaksOf(decisions);
  moveToDevice(input, planner, decisions);
  if (!fits(planner.peaksOf(decisions), input.budgets)) throw refuse(input, least);

  /** Makes the change if the budgets allow it. */
  const attempt = (apply: () => void, undo: () => void): boolean => {
    apply();
    if (fits(planner.peaksOf(decisions), input.budgets)) return true;
    undo();
    return false;
  };
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

  for (const count of [8, 4]) {
    const before = decisions.stagingCount;
    if (
      attempt(
        () => (decisions.stagingCount = count),
        () => (decisions.stagingCount = before),
      )
    )
      break;
  }
  attempt(
    () => (decisions.optimizerDepth = 2),
    () => (decisions.optimizerDepth = 1),
  );
  for (let wave = planner.slotCount; wave > 1; wave -= 1) {
    if (
      attempt(
        () => (decisions.headWave = wave),
        () => (decisions.headWave = 1),
      )
    )
      break;
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
    for (const homes of decisions.homes) attemptTier(homes, 'param', tiers);
  }
  if (input.offloadOptimizer === 'auto' || input.offloadOptimizer === 'nvme') {
    for (const homes of decisions.homes) attemptTier(homes, 'grad', ['host']);
  }
  if (input.offloadOptimizer === 'auto') {
    for (const homes of decisions.homes) attemptTier(homes, 'optimizer', ['host']);
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
    stagingCount: decisions.stagingCount,
    optimizerDepth: decisions.optimizerDepth,
    nvmeStates: planner.nvmeStates(decisions),
    peakBytes: planner.peaksOf(decisions),
    nvmeRequest: planner.nvmeRequest(decisions),
  };
}
