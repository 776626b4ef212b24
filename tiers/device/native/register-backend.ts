/**
 * @file Makes `native` a backend that any tfjs program can choose: `tf.setBackend('native')`.
 */
import { availableParallelism } from 'node:os';
import * as tf from '@tensorflow/tfjs-core';
import { registerNativeKernels } from './kernels/index.js';
import { NativeBackend } from './native-backend.js';
import { NATIVE_BACKEND_NAME } from './register-kernel.js';

/** Registers the backend with tfjs; it starts when it is first chosen. Idempotent. */
export function registerNativeBackend(): void {
  registerNativeKernels();
  if (tf.findBackendFactory(NATIVE_BACKEND_NAME) as unknown) return;
  // Below tfjs's own backends, so that importing Spillway changes no program's default.
  tf.registerBackend(
    NATIVE_BACKEND_NAME,
    () => new NativeBackend({ budgetBytes: 2 ** 30, threads: availableParallelism() }),
    0,
  );
}
