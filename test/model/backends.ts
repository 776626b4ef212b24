/**
 * @file The tfjs backends on which the models' tests run: tfjs's plain cpu, and native where the addon
 * is built.
 */
import * as tf from '@tensorflow/tfjs-core';
import { afterAll, beforeAll } from 'vitest';
import { registerNativeBackend } from '../../tiers/device/native/register-backend.js';
import { native } from '../../tiers/native/binding.js';
import { useCpuBackend } from '../device/tfjs-setup.js';

const NATIVE_BYTES = 2 ** 28;

/** Names of the backends, `cpu` first. */
export const BACKENDS: readonly string[] = native() === undefined ? ['cpu'] : ['cpu', 'native'];

/** Runs the tests of the describe block around it on backend `name`. */
export function useBackend(name: string): void {
  if (name === 'cpu') {
    useCpuBackend();
    return;
  }
  beforeAll(async () => {
    registerNativeBackend({ budgetBytes: NATIVE_BYTES, threads: 2 });
    await tf.setBackend(name);
  });
  afterAll(() => tf.removeBackend(name));
}
