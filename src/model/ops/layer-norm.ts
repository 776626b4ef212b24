/**
 * @file LayerNorm over the last axis: y = (x - mean)·rstd·weight + bias, rstd = 1/√(var + eps), var
 * the biased variance (Ba et al. 2016, arXiv 1607.06450).
 *
 * Saves x, its row statistics and the weight; the normalised rows are computed again in reverse:
 *
 *     x̂ = (x - mean)·rstd,  g = dy·weight
 *     dx = rstd·(g - mean(g) - x̂·mean(g·x̂)),  dWeight = Σ dy·x̂,  dBias = Σ dy
 */
import * as tf from '@tensorflow/tfjs-core';
import type { Tensor, Tensor2D } from '@tensorflow/tfjs-core';
import { defineOp } from '../../../tiers/device/custom-op.js';

interface NormAttrs {
  readonly epsilon: number;
}

const op = defineOp<NormAttrs>('layerNorm', {
  forward: ([x, weight, bias], { epsilon }) => {
    const mean = tf.mean(x!, -1, true);
    const centred = tf.sub(x!, mean);
    const squared = tf.square(centred);
    const rstd = tf.tidy(() => tf.rsqrt(tf.add(tf.mean(squared, -1, true), epsilon)));
    squared.dispose();
    const normalised = tf.mul(centred, rstd);
    centred.dispose();
    const scaled = tf.mul(normalised, weight!);
    normalised.dispose();
    return { outputs: [tf.add(scaled, bias!)], saved: [x!, mean, rstd, weight!] };
  },
  backward: ([dy], [x, mean, rstd, weight]) => {
    const normalised = tf.tidy(() => tf.mul(tf.sub(x!, mean!), rstd!));
    const dx = (): Tensor => {
      const g = tf.mul(dy!, weight!);
      const meanG = tf.mean(g, -1, true);
      const slope = tf.tidy(() => tf.mean(tf.mul(g, normalised), -1, true));
      const deviation = tf.sub(g, meanG);
      g.dispose();
      const along = tf.mul(normalised, slope);
      const difference = tf.sub(deviation, along);
      deviation.dispose();
      along.dispose();
      return tf.mul(difference, rstd!);
    };
    return [dx, () => tf.sum(tf.mul(dy!, normalised), 0), () => tf.sum(dy!, 0)];
  },
});

/**
 * LayerNorm of the rows of `x`.
 *
 * @param x [N, C]
 * @param weight [C]
 * @param bias [C]
 * @returns [N, C]
 */
export function layerNorm(x: Tensor, weight: Tensor, bias: Tensor, epsilon: number): Tensor2D {
  return op([x, weight, bias], { epsilon })[0] as Tensor2D;
}
