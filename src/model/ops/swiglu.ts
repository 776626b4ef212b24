/**
 * @file Llama's gated activation: y = silu(gate)·up, silu(g) = g·σ(g) (Shazeer 2020, arXiv
 * 2002.05202).
 *
 * Saves gate and up: dUp = dy·g·σ, dGate = dy·up·σ·(1 + g·(1 - σ)).
 */
import * as tf from '@tensorflow/tfjs-core';
import type { Tensor } from '@tensorflow/tfjs-core';
import { defineOp } from '../../../tiers/device/custom-op.js';
import { FUSED } from '../../../tiers/device/native/kernels/fused-names.js';
import { consume } from './consume.js';
import { hasKernel, runKernel } from './fused-kernel.js';

const op = defineOp<null>('swiglu', {
  forward: ([gate, up]) => {
    const silu = consume(tf.sigmoid(gate!), (sigma) => tf.mul(gate!, sigma));
    return { outputs: [consume(silu, (activated) => tf.mul(activated, up!))], saved: [gate!, up!] };
  },
  backward: ([dy], [gate, up]) => [
    () => {
      const sigma = tf.sigmoid(gate!);
      const rest = consume(tf.sub(1, sigma), (complement) => tf.mul(gate!, complement));
      const bracket = consume(rest, (term) => tf.add(term, 1));
      const slope = consume(bracket, (factor) => tf.mul(sigma, factor));
      sigma.dispose();
      const perUp = consume(slope, (value) => tf.mul(up!, value));
      return consume(perUp, (value) => tf.mul(dy!, value));
    },
    () => {
      const silu = consume(tf.sigmoid(gate!), (sigma) => tf.mul(gate!, sigma));
      return consume(silu, (activated) => tf.mul(dy!, activated));
    },
  ],
});

const fusedOp = defineOp<null>('swiglu', {
  forward: ([gate, up]) => ({
    outputs: runKernel(FUSED.swiglu, { gate, up }),
    saved: [gate!, up!],
  }),
  backward: ([dy], [gate, up]) => runKernel(FUSED.swigluGrad, { dy, gate, up }),
});

/** silu(gate)·up, all of one shape. */
export function swiglu<T extends Tensor>(gate: T, up: T): T {
  return (hasKernel(FUSED.swiglu) ? fusedOp : op)([gate, up], null)[0] as T;
}
