/**
 * @file Runs a fused kernel where the active backend has it (tiers/device/native/kernels/fused.ts).
 */
import * as tf from '@tensorflow/tfjs-core';
import type { Tensor } from '@tensorflow/tfjs-core';

/** Whether the active backend has a kernel of that name. */
export function hasKernel(name: string): boolean {
  return (tf.getKernel(name, tf.getBackend()) as tf.KernelConfig | undefined) !== undefined;
}

/** Runs a kernel of the active backend; inputs that are undefined are left out. */
export function runKernel(
  name: string,
  inputs: Readonly<Record<string, Tensor | undefined>>,
  attrs: object = {},
): Tensor[] {
  const given = Object.entries(inputs).filter(([, tensor]) => tensor !== undefined);
  const tensors = Object.fromEntries(given) as tf.NamedTensorMap;
  const outputs: Tensor | Tensor[] = tf.engine().runKernel(name, tensors, attrs as tf.NamedAttrMap);
  return Array.isArray(outputs) ? outputs : [outputs];
}
