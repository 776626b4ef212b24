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
import { FUSED, type NormAttrs } from '../../../tiers/device/native/kernels/fused-names.js';
import { consume } from './consume.js';
import { hasKernel, runKernel } from './fused-kernel.js';

const op = defineOp<NormAttrs>('layerNorm', {
  forward: ([x, weight, bias], { epsilon }) => {
    const mean = tf.mean(x!, -1, true);
    const centred = tf.sub(x!, mean);
    const variance = consume(tf.square(centred), (squares) => tf.mean(squares, -1, true));
    const rstd = consume(variance, (value) => tf.rsqrt(tf.add(value, epsilon)));
    const normalised = consume(centred, (value) => tf.mul(value, rstd));
    const scaled = consume(normalised, (value) => tf.mul(value, weight!));
    const y = consume(scaled, (value) => tf.add(value, bias!));
    return { outputs: [y], saved: [x!, mean, rstd, weight!] };
  },
  backward: ([dy], [x, mean, rstd, weight]) => {
    const normalised = consume(tf.sub(x!, mean!), (centred) => tf.mul(centred, rstd!));
    const dx = (): Tensor => {
      const g = tf.mul(dy!, weight!);
      const slope = consume(tf.mul(g, normalised), (value) => tf.mean(value, -1, true));
      const deviation = consume(g, (value) => tf.sub(value, tf.mean(value, -1, true)));
      const along = tf.mul(normalised, slope);
      const difference = consume(deviation, (value) => tf.sub(value, along));
      along.dispose();
      return consume(difference, (value) => tf.mul(value, rstd!));
    };
    const dWeight = (): Tensor => consume(tf.mul(dy!, normalised), (product) => tf.sum(product, 0));
    return [dx, dWeight, () => tf.sum(dy!, 0)];
  },
});

const fusedOp = defineOp<NormAttrs>('layerNorm', {
  forward: ([x, weight, bias], attrs) => {
    const [y, mean, rstd] = runKernel(FUSED.layerNorm, { x, weight, bias }, attrs);
    return { outputs: [y!], saved: [x!, mean!, rstd!, weight!] };
  },
  backward: ([dy], [x, mean, rstd, weight]) => [
    () => runKernel(FUSED.normGradX, { dy, x, weight, mean, rstd })[0]!,
    () => runKernel(FUSED.normGradWeight, { dy, x, mean, rstd })[0]!,
    () => tf.sum(dy!, 0),
  ],
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
  const layerNormOp = hasKernel(FUSED.layerNorm) ? fusedOp : op;
  return layerNormOp([x, weight, bias], { epsilon })[0] as Tensor2D;
}
