/**
 * @file RMSNorm over the last axis: y = x·rstd·weight, rstd = 1/√(mean(x²) + eps) (Zhang and
 * Sennrich 2019, arXiv 1910.07467).
 *
 * Saves x, rstd and the weight:
 *
 *     x̂ = x·rstd,  g = dy·weight,  dx = rstd·(g - x̂·mean(g·x̂)),  dWeight = Σ dy·x̂
 */
import * as tf from '@tensorflow/tfjs-core';
import type { Tensor, Tensor2D } from '@tensorflow/tfjs-core';
import { defineOp } from '../../../tiers/device/custom-op.js';

interface NormAttrs {
  readonly epsilon: number;
}

const op = defineOp<NormAttrs>('rmsNorm', {
  forward: ([x, weight], { epsilon }) => {
    const squared = tf.square(x!);
    const rstd = tf.tidy(() => tf.rsqrt(tf.add(tf.mean(squared, -1, true), epsilon)));
    squared.dispose();
    const normalised = tf.mul(x!, rstd);
    return { outputs: [tf.mul(normalised, weight!)], saved: [x!, rstd, weight!] };
  },
  backward: ([dy], [x, rstd, weight]) => {
    const normalised = tf.mul(x!, rstd!);
    const dx = (): Tensor => {
      const g = tf.mul(dy!, weight!);
      const slope = tf.tidy(() => tf.mean(tf.mul(g, normalised), -1, true));
      const along = tf.mul(normalised, slope);
      const difference = tf.sub(g, along);
      g.dispose();
      along.dispose();
      return tf.mul(difference, rstd!);
    };
    return [dx, () => tf.sum(tf.mul(dy!, normalised), 0)];
  },
});

/**
 * RMSNorm of the rows of `x`.
 *
 * @param x [N, C]
 * @param weight [C]
 * @returns [N, C]
 */
export function rmsNorm(x: Tensor, weight: Tensor, epsilon: number): Tensor2D {
  return op([x, weight], { epsilon })[0] as Tensor2D;
}
