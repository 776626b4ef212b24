/**
 * @file One training step: forward, backward, gradients at home; in either micro-batch order.
 *
 * Vertical: all micro-batches of a block, then the next block; each weight moves twice per step.
 * Horizontal: all blocks, then the next micro-batch. Both give the same bits: see the canonical
 * gradient in gradient-writer.ts. Losses are summed in double, in micro-batch and token order.
 */
import type { Tensor } from '@tensorflow/tfjs-core';
import { SpillwayError, assert } from '../../core/errors.js';
import type { TierManager } from '../../tiers/tier-manager.js';
import type { Block, BlockAux, DenseBlock, MicroBatch, RowBlock } from '../model/block.js';
import type { MemoryPlan } from '../plan/placement.js';
import type { ParameterGroup } from '../plan/parameter-layout.js';
import type { ActivationStore } from './activation-store.js';
import { forwardDense, forwardRows, reverse, seedOf } from './block-compute.js';
import { withFields } from './batch-fields.js';
import type { GradientWriter } from './gradient-writer.js';
import { HeadPass, mergeSums, type HeadInput } from './head-pass.js';
import { LossSum } from './loss-sum.js';
import type { ParameterLoader } from './parameter-loader.js';
import type { RowGradients } from './row-gradients.js';
import type { UpdateSweep } from './update-sweep.js';

/** What the runner works with; the engine owns all of it. */
export interface StepParts {
  readonly blocks: readonly Block[];
  readonly plan: MemoryPlan;
  readonly tiers: TierManager;
  readonly loader: ParameterLoader;
  readonly activations: ActivationStore;
  readonly writer: GradientWriter;
  readonly rows: ReadonlyMap<string, RowGradients>;
  readonly sweep: UpdateSweep;
  readonly seed: number;
}

/** Called as soon as groups' gradients are complete and finite. */
export type OnComplete = (groups: readonly ParameterGroup[]) => void;

export class StepRunner {
  readonly #parts: StepParts;

  constructor(parts: StepParts) {
    this.#parts = parts;
  }

  /**
   * Runs forward and backward over the accumulated batch.
   *
   * @param step zero-based
   * @returns mean loss over the batch's loss terms
   * @throws NON_FINITE naming the block; anything that moves or computes may throw
   */
  async run(step: number, batches: readonly MicroBatch[], onComplete: OnComplete): Promise<number> {
    const weight = totalWeight(batches);
    const losses = new LossSum(this.#lastName());
    for (const rows of this.#parts.rows.values()) rows.reset();
    const aux = batches.map((batch, microBatch) => this.#aux(step, batch, microBatch, 1 / weight));
    if (this.#parts.plan.order === 'vertical') {
      await this.#pass(aux, losses, onComplete, { first: true, last: true });
    } else {
      for (const [index, one] of aux.entries()) {
        const where = { first: index === 0, last: index === aux.length - 1 };
        await this.#pass([one], losses, onComplete, where);
      }
    }
    return losses.value / weight;
  }

  /** Forward only. @returns the sum of the losses and of the weights */
  async evaluate(batch: MicroBatch): Promise<{ lossSum: number; weight: number }> {
    const weight = totalWeight([batch]);
    const losses = new LossSum(this.#lastName());
    const aux = [this.#aux(0, batch, 0, 1 / weight)];
    await this.#forward(aux);
    await this.#last(aux, losses, undefined, true);
    this.#clearActivations();
    return { lossSum: losses.value, weight };
  }

  /** Empties all activation slots. */
  #clearActivations(): void {
    const { plan, activations } = this.#parts;
    for (const [block, tiers] of plan.activationTiers.entries()) {
      for (let slot = 0; slot < tiers.length; slot += 1) activations.clear(block, slot);
    }
  }

  async #pass(
    aux: readonly BlockAux[],
    losses: LossSum,
    onComplete: OnComplete,
    where: { first: boolean; last: boolean },
  ): Promise<void> {
    const { blocks, writer } = this.#parts;
    await this.#forward(aux);
    for (let index = blocks.length - 1; index >= 0; index -= 1) {
      const block = blocks[index];
      assert(block !== undefined, 'the block exists');
      if (index === blocks.length - 1) await this.#last(aux, losses, writer, where.first);
      else if (block.kind === 'row') await this.#reverseRows(block, aux, where.last);
      else if (block.kind === 'dense') await this.#reverseDense(block, index, aux, where.first);
      if (where.last) onComplete(await writer.complete(index));
    }
  }

  /** Runs all blocks but the last, leaving each block's input in its slot. */
  async #forward(aux: readonly BlockAux[]): Promise<void> {
    const { blocks, loader, sweep, activations, tiers } = this.#parts;
    for (const [index, block] of blocks.slice(0, -1).entries()) {
      await sweep.pass(block.uses);
      if (block.kind === 'row') {
        for (const one of aux) await this.#forwardRows(block, one);
        continue;
      }
      assert(block.kind === 'dense', 'only the last block is tiled');
      const params = await loader.loadParams(block.uses);
      try {
        for (const [slot, one] of aux.entries()) {
          const input = index === 0 ? undefined : await activations.get(index, slot);
          const output = await withFields(tiers, block, { ...one, block: index }, async (ready) =>
            forwardDense(tiers.device, block, params, input ? [input.tensor] : [], ready),
          );
          input?.release();
          await activations.put(index + 1, slot, output);
        }
      } finally {
        for (const tensor of Object.values(params)) tensor.dispose();
      }
    }
  }

  async #forwardRows(block: RowBlock, aux: BlockAux): Promise<void> {
    const { loader, activations, tiers } = this.#parts;
    await loader.withRows(block.gathers, aux.fields, 0, async (rows) => {
      const output = await withFields(tiers, block, aux, async (ready) =>
        forwardRows(tiers.device, block, rows, ready),
      );
      await activations.put(1, this.#slotOf(aux), output);
    });
  }

  async #reverseRows(block: RowBlock, aux: readonly BlockAux[], last: boolean): Promise<void> {
    const { activations, rows, tiers, writer } = this.#parts;
    for (const one of aux) {
      const dy = await activations.take(1, this.#slotOf(one));
      const dRows = await withFields(tiers, block, one, async (ready) =>
        tiers.device.run(() => block.backward(dy, ready)),
      );
      try {
        for (const [index, gather] of block.gathers.entries()) {
          const sum = rows.get(gather.param);
          const tensor = dRows[index];
          if (sum === undefined || tensor === undefined) continue;
          await sum.addMicroBatch(gather.indices(one.fields), (offset, target) =>
            tiers.download(tensor, offset, target),
          );
        }
      } finally {
        for (const tensor of new Set([dy, ...dRows])) tensor.dispose();
      }
    }
    if (!last) return;
    for (const [name, sum] of rows) await writer.writeRows(name, sum);
  }

  async #reverseDense(
    block: DenseBlock,
    index: number,
    aux: readonly BlockAux[],
    first: boolean,
  ): Promise<void> {
    const { loader, activations, writer } = this.#parts;
    const trainable = writer.trainableOf(block);
    const params = await loader.loadParams(block.uses);
    let sums: Record<string, Tensor> = {};
    try {
      for (const [slot, one] of aux.entries()) {
        const dy = await activations.take(index + 1, slot);
        const { gradients } = await this.#reverseOne(
          block,
          index,
          one,
          slot,
          params,
          trainable,
          dy,
        );
        sums = mergeSums(this.#parts.tiers, sums, gradients);
      }
      await writer.writeDense(index, sums, first);
    } finally {
      for (const tensor of [...Object.values(params), ...Object.values(sums)]) tensor.dispose();
    }
  }

  /** Recompute and reverse pass of one micro-batch; the input's gradient takes its slot. */
  async #reverseOne(
    block: DenseBlock,
    index: number,
    aux: BlockAux,
    slot: number,
    params: Record<string, Tensor>,
    trainable: readonly string[],
    dy: Tensor | undefined,
  ): Promise<{ gradients: Record<string, Tensor>; losses: Tensor | undefined }> {
    const { activations, tiers } = this.#parts;
    const input = index === 0 ? undefined : await activations.get(index, slot);
    let losses: Tensor | undefined;
    const { dInput, dParams } = await withFields(
      tiers,
      block,
      { ...aux, block: index },
      async (ready) =>
        reverse(
          tiers.device,
          () => block.apply(params, input === undefined ? [] : [input.tensor], ready),
          params,
          trainable,
          input?.tensor,
          (ys) => {
            if (dy !== undefined) return [dy];
            const seed = seedOf(block, ys, ready.lossScale);
            losses = seed.losses;
            return [seed.dy];
          },
        ),
    );
    input?.release();
    if (dInput !== undefined) await activations.put(index, slot, dInput);
    return { gradients: dParams, losses };
  }

  /** The last block: losses and, with a writer, gradients. */
  async #last(
    aux: readonly BlockAux[],
    losses: LossSum,
    writer: GradientWriter | undefined,
    first: boolean,
  ): Promise<void> {
    const { blocks, plan, sweep } = this.#parts;
    const index = blocks.length - 1;
    const block = blocks[index];
    assert(block !== undefined && block.kind !== 'row', 'the last block gives losses');
    await sweep.pass(block.uses);
    if (block.kind === 'dense') {
      await this.#lastDense(block, index, aux, losses, writer, first);
      return;
    }
    for (let start = 0; start < aux.length; start += plan.headWave) {
      await this.#headWave(block, index, aux, start, losses, writer, first && start === 0);
    }
  }

  async #headWave(
    block: Block & { kind: 'tiled' },
    index: number,
    aux: readonly BlockAux[],
    start: number,
    losses: LossSum,
    writer: GradientWriter | undefined,
    first: boolean,
  ): Promise<void> {
    const { tiers, loader, activations, plan } = this.#parts;
    const fields = aux.slice(start, start + plan.headWave).map((one) => ({ ...one, block: index }));
    const head = new HeadPass(tiers, loader, block, index);
    const nest = async (at: number, ready: BlockAux[]): Promise<void> => {
      const one = fields[at];
      if (one !== undefined) {
        await withFields(tiers, block, one, (aux) => nest(at + 1, [...ready, aux]));
        return;
      }
      const wave = ready.map((readyAux, position): HeadInput => ({
        aux: readyAux,
        input: () => activations.get(index, start + position),
        accept: (dInput) => activations.put(index, start + position, dInput),
        losses: (tensor) => losses.add(tiers, tensor),
      }));
      await head.run(wave, writer, first);
    };
    await nest(0, []);
  }

  async #lastDense(
    block: DenseBlock,
    index: number,
    aux: readonly BlockAux[],
    losses: LossSum,
    writer: GradientWriter | undefined,
    first: boolean,
  ): Promise<void> {
    const { loader, activations, tiers } = this.#parts;
    const params = await loader.loadParams(block.uses);
    let sums: Record<string, Tensor> = {};
    try {
      for (const [slot, one] of aux.entries()) {
        if (writer === undefined) {
          const input = index === 0 ? undefined : await activations.get(index, slot);
          const output = await withFields(tiers, block, { ...one, block: index }, async (ready) =>
            forwardDense(tiers.device, block, params, input ? [input.tensor] : [], ready),
          );
          input?.release();
          await losses.add(tiers, output).finally(() => output.dispose());
          continue;
        }
        const trainable = writer.trainableOf(block);
        const result = await this.#reverseOne(
          block,
          index,
          one,
          slot,
          params,
          trainable,
          undefined,
        );
        sums = mergeSums(tiers, sums, result.gradients);
        const terms = result.losses;
        assert(terms !== undefined, 'the last block has losses');
        await losses.add(tiers, terms).finally(() => terms.dispose());
      }
      if (writer !== undefined) await writer.writeDense(index, sums, first);
    } finally {
      for (const tensor of [...Object.values(params), ...Object.values(sums)]) tensor.dispose();
    }
  }

  #aux(step: number, batch: MicroBatch, microBatch: number, lossScale: number): BlockAux {
    const { seed } = this.#parts;
    return { fields: batch.fields, tensors: {}, lossScale, seed, step, microBatch, block: 0 };
  }

  /** Activation slot of a micro-batch: its number in vertical order, the only one in horizontal. */
  #slotOf(aux: BlockAux): number {
    return this.#parts.plan.order === 'vertical' ? aux.microBatch : 0;
  }

  #lastName(): string {
    return this.#parts.blocks.at(-1)?.name ?? '';
  }
}

/** Number of loss terms in all. @throws DATA_EMPTY when there are none */
function totalWeight(batches: readonly MicroBatch[]): number {
  const weight = batches.reduce((sum, batch) => sum + batch.weight, 0);
  if (!(weight > 0)) {
    throw new SpillwayError(
      'DATA_EMPTY',
      'the accumulated batch has no loss terms; every label is masked',
    );
  }
  return weight;
}
