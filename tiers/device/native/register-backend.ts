/**
 * @file Makes `native` a backend that any tfjs program can choose: `tf.setBackend('native')`.
 */
import * as tf from '@tensorflow/tfjs-core';
import { ensureGradients } from '../gradients.js';
import { registerFallbacks } from './cpu-fallback.js';
import { registerNativeKernels } from './kernels/index.js';
import { NativeBackend, type NativeBackendOptions } from './native-backend.js';
import { NATIVE_BACKEND_NAME } from './register-kernel.js';

/** Registers the backend with tfjs; it starts when it is first chosen. Once per process. */
export function registerNativeBackend(options: NativeBackendOptions): void {
  ensureGradients();
  registerNativeKernels();
  registerFallbacks();
  // Below tfjs's own backends, so that importing Spillway changes no program's default.
  tf.registerBackend(NATIVE_BACKEND_NAME, () => new NativeBackend(options), 0);
}
