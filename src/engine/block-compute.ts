/**
 * @file Runs one block on one micro-batch: forward, and recompute with the reverse pass.
 *
 * Every function is synchronous on the device and leaves exactly the tensors that it returns. The
 * caller owns parameters, inputs and fields, and disposes what it gets.
 */
import * as tf from '@tensorflow/tfjs-core';
import type { Tensor } from '@tensorflow/tfjs-core';
import { SpillwayError, assert } from '../../core/errors.js';
import type { Device } from '../../tiers/device/device.js';
import { vjp } from '../../tiers/device/tape.js';
import type {
  BlockAux,
  DenseBlock,
  Extension,
  ParamName,
  Params,
  RowBlock,
  SequencePlace,
  Tile,
  TiledBlock,
} from '../model/block.js';

/** Gradients of one reverse pass. */
export interface BlockGradients {
  /** With respect to the input; absent in the first block. */
  readonly dInput: Tensor | undefined;
  readonly dParams: Record<ParamName, Tensor>;
}

function single(block: { name: string }, outputs: readonly Tensor[]): Tensor {
  const [output] = outputs;
  if (output === undefined || outputs.length !== 1) {
    throw new SpillwayError(
      'BLOCK_INVALID',
      `block ${block.name} returned ${outputs.length} tensors; return exactly one`,
    );
  }
  return output;
}

/** Forward pass of a dense block; the output is new, never one of the inputs. */
export function forwardDense(
  device: Device,
  block: DenseBlock,
  params: Params,
  inputs: readonly Tensor[],
  aux: BlockAux,
): Tensor {
  return device.run(() =>
    tf.tidy(() => {
      const output = single(block, block.apply(params, inputs, aux));
      const given = [...Object.values(params), ...inputs, ...Object.values(aux.tensors)];
      return given.includes(output) ? tf.clone(output) : output;
    }),
  );
}

/** Forward pass of a row block on gathered rows. */
export function forwardRows(
  device: Device,
  block: RowBlock,
  rows: readonly Tensor[],
  aux: BlockAux,
): Tensor {
  return device.run(() =>
    tf.tidy(() => {
      const output = single(block, block.apply(rows, aux));
      return rows.includes(output) ? tf.clone(output) : output;
    }),
  );
}

/**
 * Recomputes a dense block (or the head's `prepare`) and walks it back.
 *
 * @param trainable names of the parameters whose gradients are wanted
 * @param dys gradients of the outputs, consumed; called after the forward pass
 */
export function reverse(
  device: Device,
  apply: () => Tensor[],
  params: Params,
  trainable: readonly ParamName[],
  input: Tensor | undefined,
  dys: (ys: readonly Tensor[]) => Tensor[],
): BlockGradients {
  const wanted = trainable.flatMap((name) => {
    const tensor = params[name];
    return tensor === undefined ? [] : [{ name, tensor }];
  });
  const xs = [...(input === undefined ? [] : [input]), ...wanted.map(({ tensor }) => tensor)];
  const { grads } = device.run(() => vjp(apply, xs, dys));
  const dParams: Record<ParamName, Tensor> = {};
  const rest = [...grads];
  const dInput = input === undefined ? undefined : rest.shift();
  for (const { name } of wanted) {
    const gradient = rest.shift();
    if (gradient !== undefined) dParams[name] = gradient;
  }
  return { dInput, dParams };
}

/** The losses of a last dense block (kept, to be disposed) and the gradient that seeds its reverse
 * pass: `lossScale` for each term. */
export function seedOf(
  block: { name: string },
  ys: readonly Tensor[],
  lossScale: number,
): { losses: Tensor; dy: Tensor } {
  const y = single(block, ys);
  return { losses: tf.clone(y), dy: tf.fill(y.shape, lossScale) };
}

/** `a + b` per tensor in float32; consumes both. */
export function addTensors(device: Device, a: Tensor, b: Tensor): Tensor {
  return device.run(() => {
    const sum = tf.add(a, b);
    a.dispose();
    b.dispose();
    return sum;
  });
}

/** Runs a method of a tiled block, keeping only the tensors that it returns. */
export function runTiled<T extends tf.TensorContainer>(device: Device, body: () => T): T {
  return device.run(() => tf.tidy(body));
}

/** Checks what a tiled block's `prepare` returned against its inputs: outputs are new tensors. */
export function prepareTiled(
  device: Device,
  block: TiledBlock,
  params: Params,
  input: Tensor,
  aux: BlockAux,
): Tensor[] {
  return device.run(() =>
    tf.tidy(() =>
      block
        .prepare(params, [input], aux)
        .map((tensor) =>
          tensor === input || Object.values(params).includes(tensor) ? tf.clone(tensor) : tensor,
        ),
    ),
  );
}

/** The next tokens of a sequence through a dense block; output and added tensors are new. */
export function extendDense(
  device: Device,
  block: DenseBlock,
  params: Params,
  inputs: readonly Tensor[],
  cached: readonly Tensor[],
  place: SequencePlace,
): Extension {
  return device.run(() => {
    const given = [...Object.values(params), ...inputs, ...cached];
    const own = (tensor: Tensor): Tensor => (given.includes(tensor) ? tf.clone(tensor) : tensor);
    const [output, ...added] = tf.tidy(() => {
      assert(block.extend !== undefined, 'the block generates', { block: block.name });
      const extension = block.extend(params, inputs, cached, place);
      return [extension.output, ...extension.added].map(own);
    });
    return { output: output!, added };
  });
}

/** The last token of [1, M, C], as a new [1, 1, C]. */
export function lastToken(device: Device, hidden: Tensor): Tensor {
  const [, count, width] = hidden.shape as [number, number, number];
  return device.run(() => tf.slice(hidden, [0, count - 1, 0], [1, 1, width]));
}

/** Logits [N, rowCount] of a tile's rows, new. */
export function tileLogits(
  device: Device,
  block: TiledBlock,
  tile: Tile,
  prepared: readonly Tensor[],
): Tensor {
  return runTiled(device, () => {
    assert(block.logits !== undefined, 'the head gives logits', { block: block.name });
    return block.logits(tile, prepared);
  });
}
