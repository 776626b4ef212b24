/**
 * @file Transpose, by any permutation.
 */
import * as tf from '@tensorflow/tfjs-core';
import type { TensorInfo } from '@tensorflow/tfjs-core';
import type { NativeBackend } from '../native-backend.js';
import { registerNative } from '../register-kernel.js';
import { launchCopy } from './launch-copy.js';
import { rowMajorStrides } from './layout.js';

/** A new tensor whose dimension `k` is dimension `permutation[k]` of `x`. */
export function transposeTensor(
  backend: NativeBackend,
  x: TensorInfo,
  permutation: readonly number[],
): TensorInfo {
  const shape = permutation.map((k) => x.shape[k]!);
  const from = rowMajorStrides(x.shape);
  const to = rowMajorStrides(shape);
  const dims = permutation.map((k, i) => ({ length: shape[i]!, strides: [from[k]!, to[i]!] }));
  const out = backend.makeOutput(shape, x.dtype);
  launchCopy(backend, x, out, { dims });
  return out;
}

/** Whether the elements keep their order: only dimensions of length 1 change places. */
function keepsOrder(shape: readonly number[], permutation: readonly number[]): boolean {
  const long = permutation.filter((k) => shape[k] !== 1);
  return long.every((k, i) => i === 0 || long[i - 1]! < k);
}

export function registerTranspose(): void {
  registerNative(tf.Transpose, ({ inputs, attrs, backend }) => {
    const x = inputs['x']!;
    const { perm } = attrs as unknown as tf.TransposeAttrs;
    if (keepsOrder(x.shape, perm))
      return backend.alias(
        x,
        perm.map((k) => x.shape[k]!),
      );
    return transposeTensor(backend, x, perm);
  });
}
