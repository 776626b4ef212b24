/**
 * @file GPT-2's activation, GELU in its tanh form (Hendrycks and Gimpel 2016, arXiv 1606.08415):
 * y = x/2·(1 + t), t = tanh(√(2/π)·(x + 0.044715·x³)).
 *
 * Saves x only: dy/dx = (1 + t)/2 + x/2·(1 - t²)·√(2/π)·(1 + 3·0.044715·x²).
 */
import * as tf from '@tensorflow/tfjs-core';
import type { Tensor } from '@tensorflow/tfjs-core';
import { defineOp } from '../../../tiers/device/custom-op.js';

const SQRT_2_OVER_PI = Math.sqrt(2 / Math.PI);
const CUBIC = 0.044715;

/** t of the formula above. x + c·x³ = x·(1 + c·x²). */
function tanhPart(x: Tensor): Tensor {
  return tf.tidy(() => {
    const bracket = tf.add(tf.mul(tf.square(x), CUBIC * SQRT_2_OVER_PI), SQRT_2_OVER_PI);
    return tf.tanh(tf.mul(x, bracket));
  });
}

const op = defineOp<null>('geluNew', {
  forward: ([x]) => {
    const half = tf.mul(x!, 0.5);
    const onePlus = tf.tidy(() => tf.add(tanhPart(x!), 1));
    return { outputs: [tf.mul(half, onePlus)], saved: [x!] };
  },
  backward: ([dy], [x]) => {
    const t = tanhPart(x!);
    // (1 - t²)·x·√(2/π)·(1 + 3c·x²), the part of the slope that comes from t.
    const inner = tf.tidy(() => {
      const bracket = tf.add(tf.mul(tf.square(x!), 3 * CUBIC * SQRT_2_OVER_PI), SQRT_2_OVER_PI);
      return tf.mul(tf.mul(x!, bracket), tf.sub(1, tf.square(t)));
    });
    const twiceSlope = tf.tidy(() => tf.add(tf.add(t, 1), inner));
    t.dispose();
    inner.dispose();
    return [tf.mul(dy!, tf.mul(twiceSlope, 0.5))];
  },
});

/** GELU (tanh form) of every element. */
export function geluNew<T extends Tensor>(x: T): T {
  return op([x], null)[0] as T;
}
