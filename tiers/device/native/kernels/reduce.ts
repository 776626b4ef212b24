/**
 * @file Reductions along axes (native/reduce.cc).
 *
 * The C++ kernels reduce the middle of `[outer, reduced, inner]`. Axes that are neighbours fit;
 * others are brought together at the end by a transposition first.
 */
import * as tf from '@tensorflow/tfjs-core';
import type { TensorInfo } from '@tensorflow/tfjs-core';
import { kernelIdOf } from '../kernel-id.js';
import type { NativeBackend } from '../native-backend.js';
import { nativeDtype, type NativeDtype } from '../native-dtype.js';
import { registerNative } from '../register-kernel.js';
import { withDtype } from './cast.js';
import { transposeTensor } from './transpose.js';

/** C++ kernels by the operand's type, and the result's type; without one the operand's. */
interface ReduceSpec {
  readonly kernels: Readonly<Record<NativeDtype, string>>;
  readonly out?: (dtype: NativeDtype) => NativeDtype;
}

const byType = (stem: string): Record<NativeDtype, string> => ({
  float32: `${stem}Float`,
  int32: `${stem}Int`,
  bool: `${stem}Bool`,
});
const wholeOfBool = (dtype: NativeDtype): NativeDtype => (dtype === 'bool' ? 'int32' : dtype);
const index = (): NativeDtype => 'int32';

const SUM: ReduceSpec = { kernels: byType('sum'), out: wholeOfBool };
const PROD: ReduceSpec = { kernels: byType('prod'), out: wholeOfBool };
const MAX: ReduceSpec = { kernels: byType('max') };
const MIN: ReduceSpec = { kernels: byType('min') };
const ARG_MAX: ReduceSpec = { kernels: byType('argMax'), out: index };
const ARG_MIN: ReduceSpec = { kernels: byType('argMin'), out: index };
const ALL: ReduceSpec = { kernels: { float32: '', int32: '', bool: 'allBool' } };
const ANY: ReduceSpec = { kernels: { float32: '', int32: '', bool: 'anyBool' } };

interface ReduceOptions {
  readonly axes: readonly number[];
  readonly keepDims: boolean;
  /** Of Sum over float32: what the sum is divided by before it is rounded. */
  readonly divisor?: number;
}

/** A new tensor: `x` reduced along `axes` (ascending, not negative). */
function reduceTensor(
  backend: NativeBackend,
  spec: ReduceSpec,
  x: TensorInfo,
  { axes, keepDims, divisor = 1 }: ReduceOptions,
): TensorInfo {
  const rank = x.shape.length;
  const first = axes[0] ?? rank;
  const neighbours = axes.every((axis, k) => axis === first + k);
  if (!neighbours) {
    const kept = x.shape.map((_, k) => k).filter((k) => !axes.includes(k));
    const moved = transposeTensor(backend, x, [...kept, ...axes]);
    const last = axes.map((_, k) => kept.length + k);
    const result = reduceTensor(backend, spec, moved, { axes: last, keepDims: false, divisor });
    backend.disposeData(moved.dataId);
    return keepDims ? reshaped(backend, result, shapeOf(x, axes, true)) : result;
  }
  const dtype = nativeDtype(x.dtype);
  const out = backend.makeOutput(shapeOf(x, axes, keepDims), spec.out?.(dtype) ?? dtype);
  const size = (from: number, to: number): number => tf.util.sizeFromShape(x.shape.slice(from, to));
  const outer = size(0, first);
  const inner = size(first + axes.length, rank);
  if (outer * inner === 0) return out;
  backend.launch(kernelIdOf(spec.kernels[dtype]), [
    backend.offsetOf(x),
    backend.offsetOf(out),
    outer,
    size(first, first + axes.length),
    inner,
    divisor,
  ]);
  return out;
}

function shapeOf(x: TensorInfo, axes: readonly number[], keepDims: boolean): number[] {
  if (keepDims) return x.shape.map((length, k) => (axes.includes(k) ? 1 : length));
  return x.shape.filter((_, k) => !axes.includes(k));
}

/** `x` under another shape; takes over `x`. */
function reshaped(backend: NativeBackend, x: TensorInfo, shape: number[]): TensorInfo {
  const result = backend.alias(x, shape);
  backend.disposeData(x.dataId);
  return result;
}

function axesOf(x: TensorInfo, axis: number | number[]): number[] {
  return tf.util.parseAxisParam(axis, x.shape).sort((a, b) => a - b);
}

function registerReduction(kernelName: string, spec: ReduceSpec, operand?: NativeDtype): void {
  registerNative(kernelName, ({ inputs, attrs, backend }) => {
    const x = inputs['x']!;
    const { axis, reductionIndices, keepDims } = attrs as unknown as Partial<
      tf.SumAttrs & tf.MaxAttrs
    >;
    // tfjs names the axes of Max alone otherwise.
    const options = {
      axes: axesOf(x, (reductionIndices ?? axis)!),
      keepDims: keepDims ?? false,
    };
    return withDtype(backend, x, operand ?? x.dtype, ($x) =>
      reduceTensor(backend, spec, $x, options),
    );
  });
}

export function registerReduce(): void {
  registerReduction(tf.Sum, SUM);
  registerReduction(tf.Prod, PROD);
  registerReduction(tf.Max, MAX);
  registerReduction(tf.Min, MIN);
  registerReduction(tf.All, ALL, 'bool');
  registerReduction(tf.Any, ANY, 'bool');
  for (const [kernelName, spec] of [
    [tf.ArgMax, ARG_MAX],
    [tf.ArgMin, ARG_MIN],
  ] as const) {
    registerNative(kernelName, ({ inputs, attrs, backend }) => {
      const x = inputs['x']!;
      const axes = axesOf(x, (attrs as unknown as tf.ArgMaxAttrs).axis).slice(0, 1);
      return reduceTensor(backend, spec, x, { axes, keepDims: false });
    });
  }
  registerNative(tf.Mean, ({ inputs, attrs, backend }) => {
    const x = inputs['x']!;
    const { axis, keepDims } = attrs as unknown as tf.MeanAttrs;
    const axes = axesOf(x, axis);
    // The mean of nothing is 0 in tfjs.
    const divisor = Math.max(1, tf.util.sizeFromShape(axes.map((k) => x.shape[k]!)));
    return withDtype(backend, x, 'float32', ($x) =>
      reduceTensor(backend, SUM, $x, { axes, keepDims, divisor }),
    );
  });
}
