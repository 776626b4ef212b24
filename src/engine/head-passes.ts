/**
 * @file Runs the head: its matrix is visited in tiles, forward and backward, and each visit serves
 * every micro-batch of a wave.
 *
 * Owns what a micro-batch keeps between its tiles.
 */
import * as tf from '@tensorflow/tfjs-core';
import type { Tensor } from '@tensorflow/tfjs-core';
import { assert } from '../../core/errors.js';
import type { Block, BlockAux, ParamName, TiledBlock } from '../model/block.js';
import type { Compute, OperationId } from '../plan/step-plan.js';
import {
  addTensors,
  lastToken,
  prepareTiled,
  reverse,
  runTiled,
  tileLogits,
} from './block-compute.js';
import type { ComputeOperands } from './compute-operands.js';
import type { ComputeOutputs } from './compute-outputs.js';
import type { ComputeParts } from './compute-parts.js';

/** Name of the gradient of a tile among an operation's gradients. */
export const TILE_GRADIENT: ParamName = '';

/** The pass over one micro-batch. */
interface HeadPass {
  readonly aux: BlockAux;
  prepared: Tensor[];
  carry: Tensor[];
  saved: Tensor[];
  dPrepared: Tensor[];
}

type Action<K extends Compute['kind']> = Extract<Compute, { kind: K }>;

export class HeadPasses {
  readonly #parts: ComputeParts;
  readonly #operands: ComputeOperands;
  readonly #outputs: ComputeOutputs;
  readonly #passes = new Map<number, HeadPass>();

  constructor(parts: ComputeParts, operands: ComputeOperands, outputs: ComputeOutputs) {
    this.#parts = parts;
    this.#operands = operands;
    this.#outputs = outputs;
  }

  get isEmpty(): boolean {
    return this.#passes.size === 0;
  }

  /** The head's block. */
  get block(): TiledBlock {
    const block: Block | undefined = this.#parts.blocks.at(-1);
    assert(block?.kind === 'tiled', 'the last block is tiled');
    return block;
  }

  /** @param aux of the micro-batch, with the fields that the head reads on the device */
  prepare({ microBatch, offset, input }: Action<'prepare'>, aux: BlockAux): void {
    const { device } = this.#parts;
    const { block } = this;
    const pass: HeadPass = { aux, prepared: [], carry: [], saved: [], dPrepared: [] };
    this.#passes.set(microBatch, pass);
    this.#operands.withParams(aux.block, offset, (params) =>
      this.#operands.withSource(input, aux.block, microBatch, (tensor) => {
        const prepared = prepareTiled(device, block, params, tensor!, aux);
        pass.prepared = prepared.map((one) => device.own(one));
      }),
    );
    pass.carry = runTiled(device, () => block.begin(pass.prepared, aux));
  }

  forwardTile({ tile: index, microBatches, offset }: Action<'forward-tile'>): void {
    const { device } = this.#parts;
    const { block } = this;
    this.#operands.withTile(block, index, offset, (tile) => {
      for (const microBatch of microBatches) {
        const pass = this.#pass(microBatch);
        const next = runTiled(device, () =>
          block.forwardTile(tile, pass.prepared, pass.carry, pass.aux),
        );
        disposeExcept(pass.carry, next);
        pass.carry = next;
      }
    });
  }

  end(id: OperationId, { microBatch, isLast = false }: Action<'end'>): void {
    const { device } = this.#parts;
    const { block } = this;
    const pass = this.#pass(microBatch);
    const { losses, saved } = runTiled(device, () =>
      block.end(pass.prepared, pass.carry, pass.aux),
    );
    disposeExcept(pass.carry, [...saved, losses]);
    pass.carry = [];
    pass.saved = saved;
    const own = saved.includes(losses) ? device.run(() => tf.clone(losses)) : losses;
    this.#outputs.leave(id, { losses: own });
    if (isLast) this.#forget(microBatch, pass);
  }

  /** @param aux of the sequence's tokens */
  prepareLast({ microBatch, offset, input }: Action<'prepare-last'>, aux: BlockAux): void {
    const { device } = this.#parts;
    const { block } = this;
    this.#operands.withParams(aux.block, offset, (params) =>
      this.#operands.withSource(input, aux.block, microBatch, (tensor) => {
        const last = lastToken(device, tensor!);
        const prepared = prepareTiled(device, block, params, last, aux);
        const owned = prepared.map((one) => device.own(one));
        last.dispose();
        const nothing = { carry: [], saved: [], dPrepared: [] };
        this.#passes.set(microBatch, { aux, prepared: owned, ...nothing });
      }),
    );
  }

  logitsTile(id: OperationId, { tile: index, microBatch, offset }: Action<'logits-tile'>): void {
    const { device } = this.#parts;
    const { block } = this;
    const pass = this.#pass(microBatch);
    this.#operands.withTile(block, index, offset, (tile) => {
      this.#outputs.leave(id, { logits: tileLogits(device, block, tile, pass.prepared) });
    });
    if (index === this.#tileCount() - 1) this.#forget(microBatch, pass);
  }

  backwardTile(
    id: OperationId,
    { tile: index, microBatches, offset }: Action<'backward-tile'>,
  ): void {
    const { device } = this.#parts;
    const { block } = this;
    let sum: Tensor | undefined;
    this.#operands.withTile(block, index, offset, (tile) => {
      for (const microBatch of microBatches) {
        const pass = this.#pass(microBatch);
        const { dTile, dPrepared } = runTiled(device, () =>
          block.backwardTile(tile, pass.prepared, pass.saved, pass.aux),
        );
        pass.dPrepared = dPrepared.map((added, at) => {
          const before = pass.dPrepared[at];
          return before === undefined ? added : addTensors(device, before, added);
        });
        sum = sum === undefined ? dTile : addTensors(device, sum, dTile);
      }
    });
    this.#outputs.leave(id, { gradients: { [TILE_GRADIENT]: sum! } });
    if (index < this.#tileCount() - 1) return;
    for (const microBatch of microBatches) {
      const pass = this.#pass(microBatch);
      disposeExcept([...pass.prepared, ...pass.saved], []);
      pass.prepared = [];
      pass.saved = [];
    }
  }

  reversePrepare(
    id: OperationId,
    { microBatch, offset, input, sums }: Action<'reverse-prepare'>,
  ): void {
    const { device } = this.#parts;
    const { block } = this;
    const pass = this.#pass(microBatch);
    const index = pass.aux.block;
    this.#operands.withParams(index, offset, (params) =>
      this.#operands.withSource(input, index, microBatch, (tensor) => {
        const dys = pass.dPrepared;
        pass.dPrepared = [];
        const { dInput, dParams } = reverse(
          device,
          () => block.prepare(params, [tensor!], pass.aux),
          params,
          this.#parts.trainableOf(block),
          tensor,
          () => dys,
        );
        const gradients = this.#outputs.added(sums, dParams);
        this.#outputs.leave(id, { activation: dInput, gradients });
      }),
    );
    this.#forget(microBatch, pass);
  }

  clear(): void {
    for (const pass of this.#passes.values()) disposePass(pass);
    this.#passes.clear();
  }

  #forget(microBatch: number, pass: HeadPass): void {
    disposePass(pass);
    this.#passes.delete(microBatch);
  }

  #pass(microBatch: number): HeadPass {
    const pass = this.#passes.get(microBatch);
    assert(pass !== undefined, 'the head has been prepared', { microBatch });
    return pass;
  }

  #tileCount(): number {
    const { tiledParam, tileRows } = this.block;
    return Math.ceil(this.#parts.layout.params.get(tiledParam)!.spec.shape[0]! / tileRows);
  }
}

function disposeExcept(old: readonly Tensor[], kept: readonly Tensor[]): void {
  for (const tensor of new Set(old)) if (!kept.includes(tensor)) tensor.dispose();
}

function disposePass({ prepared, carry, saved, dPrepared }: HeadPass): void {
  disposeExcept([...prepared, ...carry, ...saved, ...dPrepared], []);
}
