/**
 * @file A model's chain of blocks driven without the engine: everything resident, one block after
 * the other, as the protocol of src/model/block.ts states it. Gradients as float64 sums over the
 * uses of a parameter.
 */
import * as tf from '@tensorflow/tfjs-core';
import type { Tensor } from '@tensorflow/tfjs-core';
import type {
  Block,
  BlockAux,
  DenseBlock,
  MicroBatch,
  ParamName,
  Params,
  RowBlock,
  Tile,
  TiledBlock,
} from '../../src/model/block.js';
import { vjp } from '../../tiers/device/tape.js';

/** What one forward and reverse pass gives. */
export interface ChainResult {
  /** Unscaled loss terms, [N]. */
  readonly losses: Float32Array;
  readonly gradients: Map<ParamName, Float64Array>;
}

/** Runs forward and reverse pass of one micro-batch; leaves no tensor behind. */
export function runChain(
  blocks: readonly Block[],
  params: Params,
  batch: MicroBatch,
  lossScale: number,
): ChainResult {
  const gradients = new Map<ParamName, Float64Array>();
  const losses = tf.tidy(() => {
    const tensors = Object.fromEntries(
      Object.entries(batch.fields).map(([name, { data, shape }]) => [
        name,
        tf.tensor(data, [...shape], 'int32'),
      ]),
    );
    const auxOf = (block: number): BlockAux => {
      return { fields: batch.fields, tensors, lossScale, seed: 0, step: 0, microBatch: 0, block };
    };
    const inputs: Tensor[] = [];
    for (const [index, block] of blocks.slice(0, -1).entries()) {
      inputs.push(forward(block, params, inputs.slice(-1), auxOf(index)));
    }
    const head = blocks.at(-1) as TiledBlock;
    const last = runHead(head, params, inputs.at(-1)!, auxOf(blocks.length - 1), gradients);
    let dy = last.dx;
    for (let index = blocks.length - 2; index >= 0; index -= 1) {
      dy = reverse(blocks[index]!, params, inputs[index - 1], dy, auxOf(index), gradients);
    }
    return last.losses;
  });
  return { losses, gradients };
}

/** Logits [N, V] of the whole chain, which the engine never forms. */
export function chainLogits(blocks: readonly Block[], params: Params, batch: MicroBatch): Tensor {
  return tf.tidy(() => {
    const aux: BlockAux = {
      fields: batch.fields,
      tensors: {},
      lossScale: 1,
      seed: 0,
      step: 0,
      microBatch: 0,
      block: 0,
    };
    let x: Tensor[] = [];
    for (const block of blocks.slice(0, -1)) x = [forward(block, params, x, aux)];
    const head = blocks.at(-1) as TiledBlock;
    const [h] = head.prepare(params, x, aux);
    return tf.matMul(h!, params[head.tiledParam]!, false, true);
  });
}

function forward(block: Block, params: Params, inputs: readonly Tensor[], aux: BlockAux): Tensor {
  if (block.kind === 'row') return block.apply(gatherRows(block, params, aux), aux)[0]!;
  return (block as DenseBlock).apply(params, inputs, aux)[0]!;
}

function gatherRows(block: RowBlock, params: Params, aux: BlockAux): Tensor[] {
  return block.gathers.map((gather) =>
    tf.gather(params[gather.param]!, tf.tensor1d(gather.indices(aux.fields), 'int32')),
  );
}

function reverse(
  block: Block,
  params: Params,
  input: Tensor | undefined,
  dy: Tensor,
  aux: BlockAux,
  gradients: Map<ParamName, Float64Array>,
): Tensor {
  if (block.kind === 'row') {
    block.backward(dy, aux).forEach((rows, index) => {
      const gather = block.gathers[index]!;
      const width = rows.shape[1]!;
      const values = rows.dataSync();
      gather.indices(aux.fields).forEach((row, position) => {
        addInto(
          gradients,
          params,
          gather.param,
          row * width,
          values.subarray(position * width, (position + 1) * width),
        );
      });
    });
    return dy;
  }
  const names = [...block.uses];
  const inputs = input === undefined ? [] : [input];
  const { grads } = vjp(
    () => (block as DenseBlock).apply(params, inputs, aux),
    [...inputs, ...names.map((name) => params[name]!)],
    () => [tf.clone(dy)],
  );
  names.forEach((name, index) => {
    addInto(gradients, params, name, 0, grads[inputs.length + index]!.dataSync());
  });
  return grads[0]!;
}

function tilesOf(head: TiledBlock, params: Params): Tile[] {
  const weight = params[head.tiledParam]!;
  const [rows, width] = weight.shape as [number, number];
  return Array.from({ length: Math.ceil(rows / head.tileRows) }, (_, index) => {
    const firstRow = index * head.tileRows;
    const rowCount = Math.min(head.tileRows, rows - firstRow);
    return {
      index,
      firstRow,
      rowCount,
      weight: tf.slice(weight, [firstRow, 0], [rowCount, width]),
    };
  });
}

function runHead(
  head: TiledBlock,
  params: Params,
  input: Tensor,
  aux: BlockAux,
  gradients: Map<ParamName, Float64Array>,
): { losses: Float32Array; dx: Tensor } {
  const prepared = head.prepare(params, [input], aux);
  let carry = head.begin(prepared, aux);
  const tiles = tilesOf(head, params);
  for (const tile of tiles) carry = head.forwardTile(tile, prepared, carry, aux);
  const { losses, saved } = head.end(prepared, carry, aux);
  let dPrepared: Tensor | undefined;
  for (const tile of tiles) {
    const result = head.backwardTile(tile, prepared, saved, aux);
    const offset = tile.firstRow * tile.weight.shape[1]!;
    addInto(gradients, params, head.tiledParam, offset, result.dTile.dataSync());
    const [part] = result.dPrepared;
    dPrepared = dPrepared === undefined ? part! : tf.add(dPrepared, part!);
  }
  const names = head.uses.filter((name) => name !== head.tiledParam);
  const { grads } = vjp(
    () => head.prepare(params, [input], aux),
    [input, ...names.map((name) => params[name]!)],
    () => [tf.clone(dPrepared!)],
  );
  names.forEach((name, index) => {
    addInto(gradients, params, name, 0, grads[index + 1]!.dataSync());
  });
  return { losses: (losses.dataSync() as Float32Array).slice(), dx: grads[0]! };
}

function addInto(
  gradients: Map<ParamName, Float64Array>,
  params: Params,
  name: ParamName,
  offset: number,
  values: ArrayLike<number>,
): void {
  const total = gradients.get(name) ?? new Float64Array(params[name]!.size);
  gradients.set(name, total);
  for (let i = 0; i < values.length; i += 1) total[offset + i]! += values[i]!;
}
