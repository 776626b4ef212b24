/**
 * @file Losses of a micro-batch by a forward pass that keeps nothing but the tensor between two
 * blocks, which stays on the device.
 *
 * For inference; every block computes as in training (compute-runner.ts), so the losses have the same
 * bits.
 */
import type { Tensor } from '@tensorflow/tfjs-core';
import { assert } from '../../core/errors.js';
import type { TierManager } from '../../tiers/tier-manager.js';
import type { Block, BlockAux, MicroBatch, RowBlock, TiledBlock } from '../model/block.js';
import { BatchFields } from './batch-fields.js';
import { forwardDense, forwardRows, prepareTiled, runTiled } from './block-compute.js';
import { LossSum } from './loss-sum.js';
import type { ParameterLoader } from './parameter-loader.js';

/** What runners of inference work with; the engine owns all of it. */
export interface InferenceParts {
  readonly blocks: readonly Block[];
  readonly tiers: TierManager;
  readonly loader: ParameterLoader;
  readonly seed: number;
}

export class ForwardRunner {
  readonly #parts: InferenceParts;

  constructor(parts: InferenceParts) {
    this.#parts = parts;
  }

  /**
   * @param batch with at least one loss term
   * @returns the sum of its losses
   * @throws NON_FINITE naming the last block; anything that moves or computes may throw
   */
  async lossSum(batch: MicroBatch): Promise<number> {
    const { blocks, seed } = this.#parts;
    const lossScale = 1 / batch.weight;
    const aux = { fields: batch.fields, tensors: {}, lossScale, seed, step: 0, microBatch: 0 };
    const losses = new LossSum(blocks.at(-1)?.name ?? '');
    let x: Tensor | undefined;
    try {
      for (const [index, block] of blocks.slice(0, -1).entries()) {
        const input = x;
        x = await this.#forward(block, input, { ...aux, block: index });
        input?.dispose();
      }
      await this.#last(x, { ...aux, block: blocks.length - 1 }, losses);
    } finally {
      x?.dispose();
    }
    return losses.value;
  }

  #forward(block: Block, input: Tensor | undefined, aux: BlockAux): Promise<Tensor> {
    if (block.kind === 'row') return this.#forwardRows(block, aux);
    const { loader, tiers } = this.#parts;
    return loader.withParams(block.uses, (params) =>
      this.#withFields(block, aux, async (ready) => {
        assert(block.kind === 'dense', 'only the last block is tiled');
        return forwardDense(tiers.device, block, params, input ? [input] : [], ready);
      }),
    );
  }

  async #forwardRows(block: RowBlock, aux: BlockAux): Promise<Tensor> {
    const { loader, tiers } = this.#parts;
    return loader.withRows(block.gathers, aux.fields, 0, (rows) =>
      this.#withFields(block, aux, async (ready) => forwardRows(tiers.device, block, rows, ready)),
    );
  }

  async #last(input: Tensor | undefined, aux: BlockAux, losses: LossSum): Promise<void> {
    const { blocks, tiers } = this.#parts;
    const block = blocks.at(-1);
    assert(block !== undefined && block.kind !== 'row', 'the last block gives losses');
    if (block.kind === 'tiled') {
      assert(input !== undefined, 'the head has an input');
      return this.#tiled(block, input, aux, losses);
    }
    const output = await this.#forward(block, input, aux);
    await losses.add(tiers, output).finally(() => output.dispose());
  }

  /** The head, tile by tile. Frees `input` as soon as it is prepared. */
  #tiled(block: TiledBlock, input: Tensor, aux: BlockAux, losses: LossSum): Promise<void> {
    const { tiers, loader } = this.#parts;
    const { device } = tiers;
    const whole = block.uses.filter((name) => name !== block.tiledParam);
    return loader.withParams(whole, (params) =>
      this.#withFields(block, aux, async (ready) => {
        const live = new Set<Tensor>();
        const keep = (tensors: readonly Tensor[], ...old: Tensor[]): Tensor[] => {
          for (const tensor of tensors) live.add(tensor);
          for (const tensor of old.filter((one) => !tensors.includes(one))) {
            live.delete(tensor);
            tensor.dispose();
          }
          return [...tensors];
        };
        try {
          const prepared = keep(prepareTiled(device, block, params, input, ready));
          input.dispose();
          let carry = keep(runTiled(device, () => block.begin(prepared, ready)));
          await loader.eachTile(block, async (tile) => {
            const next = runTiled(device, () => block.forwardTile(tile, prepared, carry, ready));
            carry = keep(next, ...carry);
            await device.synchronize();
          });
          const end = runTiled(device, () => block.end(prepared, carry, ready));
          keep([...end.saved, end.losses], ...carry);
          await losses.add(tiers, end.losses);
        } finally {
          for (const tensor of live) tensor.dispose();
        }
      }),
    );
  }

  /** Runs `body` with the fields that `block` reads on the device, and frees them after. */
  async #withFields<T>(
    block: Block,
    aux: BlockAux,
    body: (ready: BlockAux) => Promise<T>,
  ): Promise<T> {
    const { tiers } = this.#parts;
    const fields = new BatchFields(tiers.device, (bytes) => {
      tiers.countUpload(bytes);
    });
    try {
      return await body({ ...aux, tensors: await fields.of(block, aux, 0) });
    } finally {
      fields.clear();
    }
  }
}
