/**
 * @file Sum of two tensors of one shape. tfjs's Add saves both summands for its gradient; this
 * saves nothing.
 */
import * as tf from '@tensorflow/tfjs-core';
import type { Tensor } from '@tensorflow/tfjs-core';
import { defineOp } from '../../../tiers/device/custom-op.js';

const op = defineOp<null>('residualAdd', {
  forward: ([a, b]) => ({ outputs: [tf.add(a!, b!)], saved: [] }),
  backward: ([dy]) => [dy!, dy!],
});

/** a + b, both of one shape. */
export function residualAdd<T extends Tensor>(a: T, b: T): T {
  return op([a, b], null)[0] as T;
}
