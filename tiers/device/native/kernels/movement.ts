/**
 * @file Slice, StridedSlice, Reverse, PadV2 and Tile: copies of boxes of elements.
 */
import * as tf from '@tensorflow/tfjs-core';
import type { TensorInfo } from '@tensorflow/tfjs-core';
import type { NativeBackend } from '../native-backend.js';
import { registerNative } from '../register-kernel.js';
import { fillTensor } from './fill.js';
import { launchCopy } from './launch-copy.js';
import { rowMajorStrides } from './layout.js';

/** A new tensor: elements `begin[k] + i * steps[k]` of each dimension, `shape[k]` of them. */
export function sliceTensor(
  backend: NativeBackend,
  x: TensorInfo,
  begin: readonly number[],
  shape: readonly number[],
  steps?: readonly number[],
): TensorInfo {
  const out = backend.makeOutput(shape, x.dtype);
  const from = rowMajorStrides(x.shape);
  const to = rowMajorStrides(shape);
  launchCopy(backend, x, out, {
    dims: shape.map((length, k) => ({
      length,
      strides: [from[k]! * (steps?.[k] ?? 1), to[k]!],
    })),
    from: begin.reduce((sum, index, k) => sum + index * from[k]!, 0),
  });
  return out;
}

function padTensor(backend: NativeBackend, x: TensorInfo, attrs: tf.PadV2Attrs): TensorInfo {
  const { paddings, constantValue } = attrs;
  const shape = x.shape.map((length, k) => paddings[k]![0] + length + paddings[k]![1]);
  if (paddings.every(([before, after]) => before === 0 && after === 0)) {
    return backend.alias(x, x.shape);
  }
  const out = fillTensor(backend, shape, x.dtype, constantValue);
  const from = rowMajorStrides(x.shape);
  const to = rowMajorStrides(shape);
  launchCopy(backend, x, out, {
    dims: x.shape.map((length, k) => ({ length, strides: [from[k]!, to[k]!] })),
    to: paddings.reduce((sum, [before], k) => sum + before * to[k]!, 0),
  });
  return out;
}

function tileTensor(backend: NativeBackend, x: TensorInfo, reps: readonly number[]): TensorInfo {
  const shape = x.shape.map((length, k) => length * reps[k]!);
  const from = rowMajorStrides(x.shape);
  const to = rowMajorStrides(shape);
  const out = backend.makeOutput(shape, x.dtype);
  launchCopy(backend, x, out, {
    dims: x.shape.flatMap((length, k) => [
      { length: reps[k]!, strides: [0, to[k]! * length] },
      { length, strides: [from[k]!, to[k]!] },
    ]),
  });
  return out;
}

function stridedSlice(
  backend: NativeBackend,
  x: TensorInfo,
  attrs: tf.StridedSliceAttrs,
): TensorInfo {
  const info = tf.slice_util.sliceInfo(
    x.shape,
    attrs.begin,
    attrs.end,
    attrs.strides,
    attrs.beginMask,
    attrs.endMask,
    attrs.ellipsisMask,
    attrs.newAxisMask,
    attrs.shrinkAxisMask,
  );
  if (info.isIdentity) return backend.alias(x, info.finalShape);
  const sparse = sliceTensor(backend, x, info.begin, info.finalShapeSparse, info.strides);
  const result = backend.alias(sparse, info.finalShape);
  backend.disposeData(sparse.dataId);
  return result;
}

export function registerMovement(): void {
  registerNative(tf.Slice, ({ inputs, attrs, backend }) => {
    const x = inputs['x']!;
    const { begin, size } = attrs as unknown as tf.SliceAttrs;
    const [start, shape] = tf.slice_util.parseSliceParams(x, begin, size);
    tf.slice_util.assertParamsValid(x, start!, shape!);
    return sliceTensor(backend, x, start!, shape!);
  });
  registerNative(tf.StridedSlice, ({ inputs, attrs, backend }) =>
    stridedSlice(backend, inputs['x']!, attrs as unknown as tf.StridedSliceAttrs),
  );
  registerNative(tf.Reverse, ({ inputs, attrs, backend }) => {
    const x = inputs['x']!;
    const reversed = tf.util.parseAxisParam((attrs as unknown as tf.ReverseAttrs).dims, x.shape);
    const begin = x.shape.map((length, k) => (reversed.includes(k) ? length - 1 : 0));
    const steps = x.shape.map((_, k) => (reversed.includes(k) ? -1 : 1));
    return sliceTensor(backend, x, begin, x.shape, steps);
  });
  registerNative(tf.PadV2, ({ inputs, attrs, backend }) =>
    padTensor(backend, inputs['x']!, attrs as unknown as tf.PadV2Attrs),
  );
  registerNative(tf.Tile, ({ inputs, attrs, backend }) =>
    tileTensor(backend, inputs['x']!, (attrs as unknown as tf.TileAttrs).reps),
  );
}
