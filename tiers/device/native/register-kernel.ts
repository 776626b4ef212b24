/**
 * @file Registers kernels of the tfjs backend `native`.
 */
import * as tf from '@tensorflow/tfjs-core';
import type { NamedAttrMap, TensorInfo } from '@tensorflow/tfjs-core';
import { assert } from '../../../core/errors.js';
import { NativeBackend } from './native-backend.js';

/** Name under which tfjs knows the backend. */
export const NATIVE_BACKEND_NAME = 'native';

/** What tfjs hands to a kernel. Inputs that the caller left out are undefined. */
export interface NativeKernelCall {
  readonly inputs: Readonly<Record<string, TensorInfo>>;
  readonly attrs: NamedAttrMap;
  readonly backend: NativeBackend;
}

/**
 * A kernel's TypeScript half: checks, shapes, outputs and launches. Returns new tensors, each from
 * `backend.makeOutput` or `backend.alias`; never an input itself.
 */
export type NativeKernel = (call: NativeKernelCall) => TensorInfo | TensorInfo[];

/** Makes `kernel` the implementation of tfjs's `kernelName`. Once per name. */
export function registerNative(kernelName: string, kernel: NativeKernel): void {
  tf.registerKernel({
    kernelName,
    backendName: NATIVE_BACKEND_NAME,
    kernelFunc: ({ inputs, attrs, backend }) =>
      kernel({
        inputs: inputs as Record<string, TensorInfo>,
        attrs: attrs ?? {},
        backend: nativeBackend(backend),
      }),
  });
}

function nativeBackend(backend: object): NativeBackend {
  assert(backend instanceof NativeBackend, 'kernels of this backend run on it');
  return backend;
}
