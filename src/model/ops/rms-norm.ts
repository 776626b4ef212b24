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
import { FUSED, type NormAttrs } from '../../../tiers/device/native/kernels/fused-names.js';
import { consume } from './consume.js';
import { hasKernel, runKernel } from './fused-kernel.js';

const op = defineOp<NormAttrs>('rmsNorm', {
  forward: ([x, weight], { epsilon }) => {
    const meanSquare = consume(tf.square(x!), (squares) => tf.mean(squares, -1, true));
    const rstd = consume(meanSquare, (value) => tf.rsqrt(tf.add(value, epsilon)));
    const y = consume(tf.mul(x!, rstd), (normalised) => tf.mul(normalised, weight!));
    return { outputs: [y], saved: [x!, rstd, weight!] };
  },
  backward: ([dy], [x, rstd, weight]) => {
    const normalised = tf.mul(x!, rstd!);
    const dx = (): Tensor => {
      const g = tf.mul(dy!, weight!);
      const slope = consume(tf.mul(g, normalised), (value) => tf.mean(value, -1, true));
      const along = tf.mul(normalised, slope);
      const difference = consume(g, (value) => tf.sub(value, along));
      along.dispose();
      return consume(difference, (value) => tf.mul(value, rstd!));
    };
    return [dx, () => consume(tf.mul(dy!, normalised), (product) => tf.sum(product, 0))];
  },
});

const fusedOp = defineOp<NormAttrs>('rmsNorm', {
  forward: ([x, weight], attrs) => {
    const [y, rstd] = runKernel(FUSED.rmsNorm, { x, weight }, attrs);
    return { outputs: [y!], saved: [x!, rstd!, weight!] };
  },
  backward: ([dy], [x, rstd, weight]) => [
    () => runKernel(FUSED.normGradX, { dy, x, weight, rstd })[0]!,
    () => runKernel(FUSED.normGradWeight, { dy, x, rstd })[0]!,
  ],
});

/**
 * RMSNorm of the rows of `x`.
 *
 * @param x [N, C]
 * @param weight [C]
 * @returns [N, C]
 */
export function rmsNorm(x: Tensor, weight: Tensor, epsilon: number): Tensor2D {
  const rmsNormOp = hasKernel(FUSED.rmsNorm) ? fusedOp : op;
  return rmsNormOp([x, weight], { epsilon })[0] as Tensor2D;
}
