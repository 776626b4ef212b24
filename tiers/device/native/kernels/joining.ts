/**
 * @file Concat, SplitV, Pack, Unpack and ExpandDims.
 */
import * as tf from '@tensorflow/tfjs-core';
import type { TensorInfo } from '@tensorflow/tfjs-core';
import type { NativeBackend } from '../native-backend.js';
import { registerNative } from '../register-kernel.js';
import { launchCopy } from './launch-copy.js';
import { rowMajorStrides } from './layout.js';
import { sliceTensor } from './movement.js';

function concatTensors(
  backend: NativeBackend,
  tensors: readonly TensorInfo[],
  axis: number,
): TensorInfo {
  const shapes = tensors.map(({ shape }) => shape);
  tf.backend_util.assertParamsConsistent(shapes, axis);
  const shape = tf.backend_util.computeOutShape(shapes, axis);
  const filled = tensors.filter((tensor) => tf.util.sizeFromShape(tensor.shape) > 0);
  if (filled.length === 1) return backend.alias(filled[0]!, shape);
  const out = backend.makeOutput(shape, tensors[0]!.dtype);
  const to = rowMajorStrides(shape);
  let start = 0;
  for (const tensor of filled) {
    const from = rowMajorStrides(tensor.shape);
    launchCopy(backend, tensor, out, {
      dims: tensor.shape.map((length, k) => ({ length, strides: [from[k]!, to[k]!] })),
      to: start * to[axis]!,
    });
    start += tensor.shape[axis]!;
  }
  return out;
}

/** Slices of `sizes` along `axis`, each under the shape that `shapeOf` makes of its own. */
function splitTensor(
  backend: NativeBackend,
  x: TensorInfo,
  axis: number,
  sizes: readonly number[],
): TensorInfo[] {
  let start = 0;
  return sizes.map((size) => {
    const begin = x.shape.map((_, k) => (k === axis ? start : 0));
    const shape = x.shape.map((length, k) => (k === axis ? size : length));
    start += size;
    return sliceTensor(backend, x, begin, shape);
  });
}

/** `shape` with a dimension of length 1 put in at `axis`. */
function expanded(shape: readonly number[], axis: number): number[] {
  return [...shape.slice(0, axis), 1, ...shape.slice(axis)];
}

export function registerJoining(): void {
  registerNative(tf.Concat, ({ inputs, attrs, backend }) => {
    const tensors = inputs as unknown as TensorInfo[];
    const { axis } = attrs as unknown as tf.ConcatAttrs;
    return concatTensors(backend, tensors, tf.util.parseAxisParam(axis, tensors[0]!.shape)[0]!);
  });
  registerNative(tf.SplitV, ({ inputs, attrs, backend }) => {
    const x = inputs['x']!;
    const { numOrSizeSplits, axis } = attrs as unknown as tf.SplitVAttrs;
    const $axis = tf.util.parseAxisParam(axis, x.shape)[0]!;
    const sizes = tf.backend_util.prepareSplitSize(x, numOrSizeSplits, $axis);
    return splitTensor(backend, x, $axis, sizes);
  });
  registerNative(tf.Pack, ({ inputs, attrs, backend }) => {
    const tensors = inputs as unknown as TensorInfo[];
    const [first] = tensors;
    const { axis } = attrs as unknown as tf.PackAttrs;
    const $axis = axis < 0 ? axis + first!.shape.length + 1 : axis;
    for (const { shape, dtype } of tensors) {
      tf.util.assertShapesMatch(first!.shape, shape, 'Pack: ');
      tf.util.assert(dtype === first!.dtype, () => 'Pack: all tensors must have one dtype');
    }
    const parts = tensors.map((tensor) => ({ ...tensor, shape: expanded(tensor.shape, $axis) }));
    return concatTensors(backend, parts, $axis);
  });
  registerNative(tf.Unpack, ({ inputs, attrs, backend }) => {
    const value = inputs['value']!;
    const { axis } = attrs as unknown as tf.UnpackAttrs;
    const $axis = axis < 0 ? axis + value.shape.length : axis;
    const shape = value.shape.filter((_, k) => k !== $axis);
    const sizes = new Array<number>(value.shape[$axis]!).fill(1);
    return splitTensor(backend, value, $axis, sizes).map((part) => ({ ...part, shape }));
  });
  registerNative(tf.ExpandDims, ({ inputs, attrs, backend }) => {
    const input = inputs['input']!;
    const { dim } = attrs as unknown as tf.ExpandDimsAttrs;
    const rank = input.shape.length;
    tf.util.assert(
      dim >= -(rank + 1) && dim <= rank,
      () => `ExpandDims: dim ${dim} is not in [${-(rank + 1)}, ${rank}]`,
    );
    return backend.alias(input, expanded(input.shape, dim < 0 ? rank + dim + 1 : dim));
  });
}
