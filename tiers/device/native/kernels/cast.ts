/**
 * @file Cast between float32, int32 and bool, with JavaScript's conversions.
 */
import * as tf from '@tensorflow/tfjs-core';
import type { TensorInfo } from '@tensorflow/tfjs-core';
import { kernelIdOf } from '../kernel-id.js';
import type { NativeBackend } from '../native-backend.js';
import { nativeDtype, type NativeDtype } from '../native-dtype.js';
import { registerNative } from '../register-kernel.js';

const KERNELS: Record<NativeDtype, Partial<Record<NativeDtype, string>>> = {
  float32: { int32: 'castFloatInt', bool: 'castFloatBool' },
  int32: { float32: 'castIntFloat', bool: 'castIntBool' },
  bool: { float32: 'castBoolFloat', int32: 'castBoolInt' },
};

/** A new tensor with the elements of `x` as `dtype`; over the same memory if that is its type. */
export function castTensor(backend: NativeBackend, x: TensorInfo, dtype: string): TensorInfo {
  const kernel = KERNELS[nativeDtype(x.dtype)][nativeDtype(dtype)];
  if (kernel === undefined) return backend.alias(x, x.shape);
  const out = backend.makeOutput(x.shape, dtype);
  const length = tf.util.sizeFromShape(x.shape);
  backend.launch(kernelIdOf(kernel), [backend.offsetOf(x), backend.offsetOf(out), length]);
  return out;
}

/** `body` of `x` as `dtype`; the converted tensor is freed afterwards. */
export function withDtype<T>(
  backend: NativeBackend,
  x: TensorInfo,
  dtype: string,
  body: (x: TensorInfo) => T,
): T {
  if (x.dtype === dtype) return body(x);
  const cast = castTensor(backend, x, dtype);
  try {
    return body(cast);
  } finally {
    backend.disposeData(cast.dataId);
  }
}

export function registerCast(): void {
  registerNative(tf.Cast, ({ inputs, attrs, backend }) =>
    castTensor(backend, inputs['x']!, (attrs as unknown as tf.CastAttrs).dtype),
  );
}
