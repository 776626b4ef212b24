/**
 * @file Writes down one training step as operations (step-plan.ts).
 *
 * Program order: vertical runs all micro-batches of a block, then the next block; horizontal runs
 * one pass over all blocks per micro-batch. What is where in between is decided by
 * HeldActivations, ParameterSlots and GradientWrites.
 *
 * Pure functions.
 */
import { assert } from '../../core/errors.js';
import type { Link } from '../../core/types.js';
import type { DenseBlock, RowBlock, TiledBlock } from '../model/block.js';
import { ActivationSlots } from './activation-slots.js';
import { ForwardPass } from './forward-pass.js';
import { GradientWrites } from './gradient-writes.js';
import { HeldActivations } from './held-activations.js';
import { OperationList } from './operation-list.js';
import type { ParameterGroup } from './parameter-layout.js';
import { ParameterSlots } from './parameter-slots.js';
import { homeOf, statesOf } from './placement.js';
import type { StepInput } from './step-input.js';
import type { OperationId, StepPlan } from './step-plan.js';
import { StepSizes } from './step-sizes.js';
import { chunkBytes, storedBytes } from './transfer-bytes.js';

/** The operations of one step. */
export function buildStep(input: StepInput): StepPlan {
  return new StepBuilder(input, true).build();
}

/** What those operations move on each link, without keeping them. */
export function stepBytes(input: StepInput): Record<Link, number> {
  return new StepBuilder(input, false).count();
}

class StepBuilder {
  readonly #input: StepInput;
  readonly #sizes: StepSizes;
  readonly #ops: OperationList;
  readonly #activations: HeldActivations;
  readonly #parameters: ParameterSlots;
  readonly #gradients: GradientWrites;
  readonly #forward: ForwardPass;

  constructor(input: StepInput, keeps: boolean) {
    this.#input = input;
    this.#sizes = new StepSizes(input);
    this.#ops = new OperationList(input, { keeps, spillLag: input.spillLag });
    const slots = new ActivationSlots(input.region, this.#ops);
    this.#activations = new HeldActivations(input, this.#ops, slots);
    this.#parameters = new ParameterSlots(input, this.#ops, this.#sizes);
    this.#gradients = new GradientWrites(input, this.#ops, this.#sizes);
    this.#forward = new ForwardPass(input, {
      ops: this.#ops,
      sizes: this.#sizes,
      parameters: this.#parameters,
      slots,
      activations: this.#activations,
    });
  }

  build(): StepPlan {
    this.#run();
    const { operations } = this.#ops;
    return { operations, paramLoadCount: this.#parameters.loadCount };
  }

  count(): Record<Link, number> {
    this.#run();
    return this.#ops.bytes;
  }

  #run(): void {
    const all = this.#input.microBatches.map((_, index) => index);
    if (this.#input.plan.order === 'vertical') this.#pass(all, true, true);
    else for (const one of all) this.#pass([one], one === 0, one === all.length - 1);
    this.#updates();
  }

  #pass(microBatches: readonly number[], first: boolean, last: boolean): void {
    const { blocks } = this.#input;
    this.#ops.phase = 'forward';
    this.#forward.blocks(microBatches);
    const lastIndex = blocks.length - 1;
    const lastBlock = blocks[lastIndex]!;
    if (lastBlock.kind === 'tiled') this.#head(lastBlock, lastIndex, microBatches, first);
    this.#ops.phase = 'backward';
    for (let index = lastIndex; index >= 0; index -= 1) {
      const block = blocks[index]!;
      if (block.kind === 'dense') this.#reverse(block, index, microBatches, first);
      else if (block.kind === 'row') this.#reverseRows(block, microBatches, last);
      if (last) this.#gradients.mergeUses(index);
    }
  }

  #reverse(
    block: DenseBlock,
    index: number,
    microBatches: readonly number[],
    first: boolean,
  ): void {
    const isLast = index === this.#input.blocks.length - 1;
    let sums: OperationId | undefined;
    for (const microBatch of microBatches) {
      const params = this.#parameters.params(index);
      const input = index === 0 ? undefined : this.#activations.activation(index, microBatch);
      const dy = isLast ? undefined : this.#activations.activation(index + 1, microBatch);
      const id = this.#ops.compute(
        {
          kind: 'reverse',
          block: index,
          microBatch,
          offset: params.offset,
          input: input?.source,
          dy: dy?.source,
          sums,
        },
        [...params.after, ...(input?.after ?? []), ...(dy?.after ?? [])],
        [...params.claims, ...(input?.claims ?? []), ...(dy?.claims ?? [])],
        { fieldBytes: this.#ops.fieldBytes(index, microBatch), fences: params.fences },
      );
      if (params.advance) this.#parameters.advanceAfter(index, microBatch);
      if (!isLast) this.#activations.forget(index + 1, microBatch);
      if (isLast) this.#forward.loss(microBatch, id);
      if (index > 0) this.#activations.replace(index, microBatch, id);
      sums = id;
    }
    assert(sums !== undefined, 'a pass has micro-batches');
    this.#gradients.writeGradients(index, sums, first);
  }

  #reverseRows(block: RowBlock, microBatches: readonly number[], last: boolean): void {
    for (const microBatch of microBatches) {
      const dy = this.#activations.activation(1, microBatch);
      const action = { kind: 'reverse-rows', microBatch, dy: dy.source } as const;
      const id = this.#ops.compute(action, dy.after, dy.claims);
      this.#activations.forget(1, microBatch);
      this.#gradients.addRows(block, microBatch, id);
    }
    if (!last) return;
    for (const { param } of block.gathers)
      if (this.#sizes.isTrainable(param)) this.#gradients.writeRows(param);
  }

  #head(block: TiledBlock, index: number, all: readonly number[], first: boolean): void {
    const { headWave } = this.#input.plan;
    for (let start = 0; start < all.length; start += headWave) {
      this.#wave(block, index, all.slice(start, start + headWave), first && start === 0);
    }
  }

  #wave(block: TiledBlock, index: number, wave: readonly number[], firstWave: boolean): void {
    this.#ops.phase = 'forward';
    this.#forward.head(block, wave, false);
    const tiles = this.#sizes.tileCount(block);
    this.#ops.phase = 'backward';
    for (let tile = 0; tile < tiles; tile += 1) {
      this.#backwardTile(block, index, tile, wave, firstWave);
    }
    let sums: OperationId | undefined;
    for (const microBatch of wave) {
      const again = this.#parameters.headParams(index);
      const input = this.#activations.activation(index, microBatch);
      const id = this.#ops.compute(
        { kind: 'reverse-prepare', microBatch, offset: again.offset, input: input.source, sums },
        [...again.after, ...input.after],
        [...again.claims, ...input.claims],
      );
      this.#activations.replace(index, microBatch, id);
      if (firstWave) sums = id;
      else this.#gradients.writeGradients(index, id, false);
    }
    if (sums !== undefined) this.#gradients.writeGradients(index, sums, true);
  }

  #backwardTile(
    block: TiledBlock,
    index: number,
    tile: number,
    wave: readonly number[],
    firstWave: boolean,
  ): void {
    const loaded = this.#parameters.tile(block, tile);
    const parts = firstWave ? [wave] : wave.map((one) => [one]);
    for (const microBatches of parts) {
      const id = this.#ops.compute(
        { kind: 'backward-tile', tile, microBatches, offset: loaded.offset },
        loaded.after,
        loaded.claims,
        { fences: loaded.fences },
      );
      const output = { operation: id, part: 'gradients' } as const;
      if (this.#sizes.isTrainable(block.tiledParam))
        this.#gradients.writeTile(block, index, tile, id, firstWave);
      else this.#ops.drop(output, id);
    }
  }

  #updates(): void {
    this.#ops.phase = 'update';
    const { layout, clips } = this.#input;
    const trainable = layout.groups.filter((group) => group.trainable);
    const writes = [...this.#gradients.lastWrites.values()];
    const norm = this.#ops.add('update', { kind: 'norm' }, {}, [
      ...this.#forward.losses,
      ...writes,
    ]);
    // Without clipping in the order in which gradients are complete, else as the next forward reads.
    const ordered = clips
      ? trainable.toSorted((a, b) => this.#firstWaiter(a) - this.#firstWaiter(b))
      : trainable.toReversed();
    for (const group of ordered) {
      const after = clips
        ? [norm]
        : [...this.#forward.losses, this.#gradients.lastWrites.get(group.index)!];
      for (const shard of group.shards) this.#update(group, shard.id, shard.length, after);
    }
  }

  /** The first block of the next forward pass that waits for a group's update. */
  #firstWaiter(group: ParameterGroup): number {
    if (!this.#sizes.tablesReadAhead.has(group.index)) return group.block;
    const { blocks, layout } = this.#input;
    const users = group.params.flatMap(({ spec }) => layout.users.get(spec.name) ?? []);
    return Math.min(blocks.length, ...users.filter((block) => blocks[block]!.kind !== 'row'));
  }

  #update(group: ParameterGroup, shard: number, length: number, after: OperationId[]): void {
    const { homes, dtype } = this.#input;
    const states = statesOf(group, dtype).filter(
      (state) => homeOf(homes[group.index]!, state) === 'nvme',
    );
    const bytes = (some: typeof states) =>
      some.reduce(
        (sum, state) => sum + chunkBytes(length, storedBytes(state, dtype), 0, length),
        0,
      );
    const action = { kind: 'update', shard, group: group.index, length } as const;
    const moved = {
      nvme_read: bytes(states),
      nvme_write: bytes(states.filter((state) => state !== 'grad')),
    };
    this.#ops.add('update', action, moved, after);
  }
}
