/**
 * @file Fill, OnesLike and ZerosLike: tensors of one value.
 */
import * as tf from '@tensorflow/tfjs-core';
import type { TensorInfo } from '@tensorflow/tfjs-core';
import { kernelIdOf } from '../kernel-id.js';
import type { NativeBackend } from '../native-backend.js';
import { nativeDtype } from '../native-dtype.js';
import { registerNative } from '../register-kernel.js';

const KERNELS = { float32: 'fillFloat', int32: 'fillInt', bool: 'fillBool' } as const;

/** A new tensor of `shape` whose elements are all `value`. */
export function fillTensor(
  backend: NativeBackend,
  shape: readonly number[],
  dtype: string,
  value: number,
): TensorInfo {
  const type = nativeDtype(dtype);
  const out = backend.makeOutput(shape, type);
  const length = tf.util.sizeFromShape([...shape]);
  backend.launch(kernelIdOf(KERNELS[type]), [backend.offsetOf(out), length, value]);
  return out;
}

export function registerFill(): void {
  registerNative(tf.Fill, ({ attrs, backend }) => {
    const { shape, value, dtype } = attrs as unknown as Partial<tf.FillAttrs>;
    const type = nativeDtype(dtype ?? tf.util.inferDtype(value as number));
    return fillTensor(backend, shape ?? [], type, Number(value));
  });
  registerNative(tf.OnesLike, ({ inputs, backend }) => {
    const { shape, dtype } = inputs['x']!;
    return fillTensor(backend, shape, dtype, 1);
  });
  registerNative(tf.ZerosLike, ({ inputs, backend }) => {
    const { shape, dtype } = inputs['x']!;
    return fillTensor(backend, shape, dtype, 0);
  });
}
