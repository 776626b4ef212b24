/**
 * @file What a step needs of the device beside what is resident, for given decisions: the region that
 * fetched bytes arrive in, and the largest need of any block in any phase.
 *
 * Upper bounds that the ledger enforces. Pure.
 */
import { alignUp } from '../../core/bytes.js';
import { SpillwayError } from '../../core/errors.js';
import { IO_ALIGNMENT } from '../../core/types.js';
import type { Block } from '../model/block.js';
import type { BlockProfile } from './block-profile.js';
import type { Decisions } from './decisions.js';
import { wholeParams } from './packed-params.js';
import type { MemoryPlanInput } from './placement.js';
import { layOutRegion } from './region-layout.js';
import type { RegionPlan } from './step-plan.js';
import { chargedBytes, keepsBfloat16, tensorBytes } from './tensor-bytes.js';

/** Bytes of the gradients of a block's whole parameters, and of the largest. */
interface GradientBytes {
  readonly grads: number;
  readonly largest: number;
}

/** A parameter that a block loads whole. */
interface Packed {
  readonly group: number;
  readonly bytes: number;
}

function maxOf(values: readonly number[]): number {
  return values.reduce((most, value) => Math.max(most, value), 0);
}

export class DeviceNeed {
  readonly #input: MemoryPlanInput;
  /** By block. */
  readonly #packed: readonly (readonly Packed[])[];
  readonly #packedSums: readonly number[];
  readonly #gradients: readonly GradientBytes[];
  /** Activation slots per block: every micro-batch in vertical order, one in horizontal. */
  readonly slotCount: number;

  constructor(input: MemoryPlanInput) {
    this.#input = input;
    const { blocks, order, microBatchCount } = input;
    this.slotCount = order === 'vertical' ? microBatchCount : 1;
    this.#packed = blocks.map((block) => packedOf(block, input));
    this.#packedSums = this.#packed.map((some) => some.reduce((sum, { bytes }) => sum + bytes, 0));
    this.#gradients = blocks.map((block) => gradientBytes(block, input));
  }

  /** Bytes of one activation slot of block `block`: the output of the block before. */
  slotBytes(block: number): number {
    return this.#input.profiles[block - 1]?.outputBytes ?? 0;
  }

  /** Bytes of the region. */
  regionBytes(decisions: Decisions): number {
    return alignUp(this.regionOf(decisions).byteLength, IO_ALIGNMENT);
  }

  /** The region that these decisions make. */
  regionOf(decisions: Decisions): RegionPlan {
    const { blocks } = this.#input;
    const packed = blocks.map((_, index) => this.#packedBytes(decisions, index));
    const dense = packed.filter((_, index) => blocks[index]?.kind === 'dense');
    const isTiled = blocks.at(-1)?.kind === 'tiled';
    return layOutRegion({
      paramSlots: decisions.paramSlots,
      paramSlotBytes: maxOf(dense),
      headBytes: isTiled ? (packed.at(-1) ?? 0) : 0,
      tileSlots: isTiled ? decisions.tileSlots : 0,
      tileSlotBytes: isTiled ? (this.#input.profiles.at(-1)?.tiled?.tileBytes ?? 0) : 0,
      tilesApart: decisions.tilesApart,
      activationSlots: decisions.activationSlots,
      activationSlotBytes: this.#activationSlotBytes(decisions),
      activationsApart: true,
    });
  }

  /** Fewest activation slots: a reverse pass in vertical order fetches an input and a gradient. */
  get leastActivationSlots(): number {
    return this.slotCount > 1 ? 2 : 1;
  }

  /** As `packParams` of the block has it. */
  #packedBytes({ homes }: Decisions, index: number): number {
    if (this.#input.dtype !== 'float32') return this.#packedSums[index]!;
    let sum = 0;
    for (const { group, bytes } of this.#packed[index]!) {
      // Read where it lives.
      if (homes[group]?.param !== 'device') sum += bytes;
    }
    return sum;
  }

  /** What the largest fetch of rows, or of an activation that is away from the device, takes. */
  #activationSlotBytes(decisions: Decisions): number {
    const { blocks, profiles } = this.#input;
    const rows = blocks[0]?.kind === 'row' ? profileAt(profiles, 0).rowBytes : 0;
    const away = decisions.activationTiers.map((tiers, block) =>
      tiers.some((tier) => tier !== 'device') ? chargedBytes(this.slotBytes(block)) : 0,
    );
    return maxOf([rows, ...away]);
  }

  /** What is on the device besides region and residents, at most: operations of a training step, or
   * of an evaluation, which passes activations on and keeps none. Of the decisions only `headWave` and
   * `spillLag` matter. */
  transientBytes(decisions: Decisions): number {
    const { blocks } = this.#input;
    const needs = blocks.map((block, index) =>
      block.kind === 'tiled'
        ? this.#tiledTransient(decisions, index)
        : this.#blockTransient(decisions, block, index),
    );
    const { microBatchCount, fieldBytes } = this.#input;
    return maxOf(needs) + this.#lossBytes() + microBatchCount * fieldBytes;
  }

  /** Losses wait on the device for a few operations. */
  #lossBytes(): number {
    const last = this.#input.profiles.at(-1);
    return (
      this.#input.microBatchCount * chargedBytes(last?.tiled?.lossBytes ?? last?.outputBytes ?? 0)
    );
  }

  #blockTransient(decisions: Decisions, block: Block, index: number): number {
    const profile = profileAt(this.#input.profiles, index);
    const output = chargedBytes(profile.outputBytes);
    // An output (or a gradient) that only views what was fetched is copied.
    const copied = profile.forwardBytes < profile.outputBytes ? output : 0;
    // A step of one micro-batch carries its activations, also where more were planned for, and so does
    // an evaluation.
    const carried = this.#carried(decisions, index);
    const apart = this.slotCount > 1 ? this.#apart(decisions, index) : 0;
    return copied + profile.widenedBytes + Math.max(carried, apart);
  }

  /** Of a pass of one micro-batch, which hands activations from block to block on the device. */
  #carried({ spillLag: late }: Decisions, index: number): number {
    const { forwardBytes, reverseBytes, outputBytes } = profileAt(this.#input.profiles, index);
    const input = this.#activation(index);
    // Left for the next operation to free: the input before, and gradients of the pass before.
    const before = late * Math.max(this.#activation(index - 1), index === 0 ? this.#own(0) : 0);
    // The output's gradient; in the last block, whose input is still there, its losses.
    const output = chargedBytes(outputBytes);
    const lingering = this.#isLast(index) ? input + before : late * this.#own(index + 1);
    return Math.max(input + before + forwardBytes, output + lingering + reverseBytes);
  }

  /** Of several micro-batches one after the other, whose activations wait in places of their own. */
  #apart({ spillLag: late }: Decisions, index: number): number {
    const { forwardBytes, reverseBytes, outputBytes } = profileAt(this.#input.profiles, index);
    const { grads, largest } = this.#gradients[index]!;
    const input = this.#activation(index);
    const output = chargedBytes(outputBytes);
    // On their way to their places: what the micro-batch before left, or the block before.
    const own = index === 0 ? this.#own(0) : input;
    const before = this.#isLast(index) ? input : this.#own(index + 1) + this.#activation(index + 1);
    const adding = 2 * grads + largest + input;
    return Math.max(
      late * Math.max(input, output) + forwardBytes,
      output + late * Math.max(own, before) + Math.max(reverseBytes + grads, adding),
    );
  }

  /** Bytes of the input of a block on the device; 0 where there is none. */
  #activation(index: number): number {
    return chargedBytes(this.slotBytes(index));
  }

  /** Gradients that a block's reverse pass leaves, to be written. */
  #own(index: number): number {
    const { blocks, profiles } = this.#input;
    const rows = blocks[index]?.kind === 'row' ? profileAt(profiles, index).rowBytes : 0;
    return rows + this.#gradients[index]!.grads;
  }

  #isLast(index: number): boolean {
    return index === this.#input.blocks.length - 1;
  }

  #tiledTransient(decisions: Decisions, index: number): number {
    const profile = profileAt(this.#input.profiles, index);
    const { tiled } = profile;
    const block = this.#input.blocks[index];
    if (tiled === undefined || block?.kind !== 'tiled') return 0;
    const { grads, largest } = this.#gradients[index]!;
    const wave = decisions.headWave;
    const late = decisions.spillLag;
    const input = chargedBytes(this.slotBytes(index));
    const perMicroBatch = 2 * tiled.preparedBytes + tiled.carryBytes;
    const held = profile.widenedBytes + wave * perMicroBatch;
    const sumTile = (wave > 1 ? 2 : 1) * tiled.tileBytes;
    const sumWhole = wave > 1 ? grads + largest : 0;
    // From the second tile on, its part of the gradient is added to that of the tiles before.
    const rows = this.#input.layout.params.get(block.tiledParam)?.spec.shape[0] ?? 0;
    const adding = rows > block.tileRows ? tiled.tileBytes + 2 * tiled.preparedBytes : 0;
    const before = this.#activation(index - 1);
    // Its input, or what a pass before left of it; what the block before left.
    const carried = Math.max(input + late * before, late * (grads + input));
    return (
      held +
      maxOf([
        carried + tiled.prepareBytes,
        carried + tiled.forwardTileBytes,
        tiled.endBytes,
        Math.max(tiled.backwardTileBytes, adding) + sumTile + late * tiled.tileBytes,
        input + tiled.prepareReverseBytes + sumWhole + late * (tiled.tileBytes + grads + input),
      ])
    );
  }
}

function packedOf(block: Block, input: MemoryPlanInput): Packed[] {
  const { layout, dtype, bf16Operands } = input;
  return wholeParams(block).map((name) => {
    const { spec, length, group } = layout.params.get(name)!;
    const kept = keepsBfloat16(spec.shape, dtype, bf16Operands);
    return { group, bytes: chargedBytes(length * (kept ? 2 : 4)) };
  });
}

function gradientBytes(block: Block, { layout }: MemoryPlanInput): GradientBytes {
  const trainable = wholeParams(block)
    .flatMap((name) => layout.params.get(name) ?? [])
    .filter((param) => param.spec.trainable !== false)
    .map((param) => tensorBytes(param.length));
  return { grads: trainable.reduce((sum, bytes) => sum + bytes, 0), largest: maxOf(trainable) };
}

function profileAt(profiles: readonly BlockProfile[], index: number): BlockProfile {
  const profile = profiles[index];
  if (profile === undefined) throw new SpillwayError('INTERNAL', `block ${index} has no profile`);
  return profile;
}
