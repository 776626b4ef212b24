/**
 * @file Adds up, for given decisions, the most bytes that each tier holds at any time.
 *
 * Device: what is resident plus the largest need of any block in any phase. Host: leases, staging
 * and row gradients. NVMe: the layout, exactly. Upper bounds that the ledgers enforce.
 */
import { alignUp } from '../../core/bytes.js';
import { SpillwayError } from '../../core/errors.js';
import { IO_ALIGNMENT, type ComputeDtype, type StateName, type Tier } from '../../core/types.js';
import { STAGING_BUFFER_BYTES } from '../../tiers/host/staging-pool.js';
import { layoutBytes, type LayoutRequest } from '../../tiers/nvme/layout.js';
import type { Block } from '../model/block.js';
import type { StagingDepth } from '../optim/staging.js';
import type { BlockProfile } from './block-profile.js';
import {
  homeOf,
  scratchName,
  stateType,
  statesOf,
  useAccumulatorsOf,
  type GroupHomes,
  type MemoryPlanInput,
  type UseAccumulator,
} from './placement.js';
import type { ParamAddress, ParameterGroup } from './parameter-layout.js';
import { chargedBytes, keepsBfloat16, tensorBytes } from './tensor-bytes.js';

/** What the planner decides step by step. */
export interface Decisions {
  headWave: number;
  homes: GroupHomes[];
  activationTiers: Tier[][];
  accumulatorTiers: Tier[];
  stagingCount: number;
  optimizerDepth: StagingDepth;
}

function stateBytes(group: ParameterGroup, state: StateName, dtype: ComputeDtype): number {
  return group.length * (stateType(state, dtype) === 'float32' ? 4 : 2);
}

function maxOf(values: readonly number[]): number {
  return values.reduce((most, value) => Math.max(most, value), 0);
}

export class PeakBytes {
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
      const charged = tier === 'host' ? alignUp(slot, IO_ALIGNMENT) : chargedBytes(slot);
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
    const { layout, dtype, bf16Operands } = this.#input;
    if (block.kind === 'row') return { loaded: 0, grads: 0, largest: 0 };
    const addresses = block.uses
      .filter((name) => block.kind !== 'tiled' || name !== block.tiledParam)
      .flatMap((name) => layout.params.get(name) ?? []);
    const isAliased = (param: ParamAddress): boolean =>
      dtype === 'float32' && homesAt(decisions, param.group).param === 'device';
    const sum = (some: readonly ParamAddress[]): number =>
      some.reduce((bytes, param) => bytes + tensorBytes(param.length), 0);
    const trainable = addresses.filter((param) => param.spec.trainable !== false);
    return {
      loaded: addresses
        .filter((param) => !isAliased(param))
        .reduce((bytes, { length, spec }) => {
          const isHalf = keepsBfloat16(spec.shape, dtype, bf16Operands);
          return bytes + (isHalf ? chargedBytes(length * 2) : tensorBytes(length));
        }, 0),
      grads: sum(trainable),
      largest: maxOf(trainable.map((param) => tensorBytes(param.length))),
    };
  }

  #blockTransient(decisions: Decisions, block: Block, index: number): number {
    const profile = profileAt(this.#input.profiles, index);
    const params = this.#wholeParams(decisions, block);
    const input = chargedBytes(this.slotBytes(index));
    const loaded = params.loaded + profile.widenedBytes;
    const held = loaded + profile.fieldBytes + profile.rowBytes + input;
    const forward = held + profile.forwardBytes;
    // In vertical order the sum of the micro-batches' gradients is on the device as well.
    const sums = this.slotCount > 1 ? params.grads : 0;
    const adding = this.slotCount > 1 ? 2 * params.grads + params.largest + input : 0;
    // The output's gradient; in the last block its losses, which live until they are summed.
    const output = chargedBytes(profile.outputBytes);
    return Math.max(forward, held + output + Math.max(profile.reverseBytes + sums, adding));
  }

  #tiledTransient(decisions: Decisions, index: number): number {
    const profile = profileAt(this.#input.profiles, index);
    const { tiled } = profile;
    const block = this.#input.blocks[index];
    if (tiled === undefined || block?.kind !== 'tiled') return 0;
    const params = this.#wholeParams(decisions, block);
    const wave = decisions.headWave;
    const input = chargedBytes(this.slotBytes(index));
    const perMicroBatch = profile.fieldBytes + 2 * tiled.preparedBytes + tiled.carryBytes;
    const held = params.loaded + profile.widenedBytes + wave * perMicroBatch;
    const sumTile = wave > 1 ? 2 * tiled.tileBytes : 0;
    const sumWhole = wave > 1 ? params.grads + params.largest : 0;
    // From the second tile on, its part of the gradient is added to that of the tiles before.
    const rows = this.#input.layout.params.get(block.tiledParam)?.spec.shape[0] ?? 0;
    const adding = rows > block.tileRows ? tiled.tileBytes + 2 * tiled.preparedBytes : 0;
    return (
      held +
      maxOf([
        input + tiled.prepareBytes,
        tiled.tileBytes + tiled.forwardTileBytes,
        tiled.endBytes,
        tiled.tileBytes + Math.max(tiled.backwardTileBytes, adding) + sumTile,
        input + tiled.prepareReverseBytes + sumWhole,
      ])
    );
  }
}

/** Homes of a group. */
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
