/**
 * @file Llama's gated activation: y = silu(gate)·up, silu(g) = g·σ(g) (Shazeer 2020, arXiv
 * 2002.05202).
 *
 * Saves gate and up: dUp = dy·g·σ, dGate = dy·up·σ·(1 + g·(1 - σ)).
 */
import * as tf from '@tensorflow/tfjs-core';
import type { Tensor } from '@tensorflow/tfjs-core';
import { defineOp } from '../../../tiers/device/custom-op.js';

const op = defineOp<null>('swiglu', {
  forward: ([gate, up]) => {
    const silu = tf.tidy(() => tf.mul(gate!, tf.sigmoid(gate!)));
    return { outputs: [tf.mul(silu, up!)], saved: [gate!, up!] };
  },
  backward: ([dy], [gate, up]) => {
    const sigma = tf.sigmoid(gate!);
    return [
      () => {
        const slope = tf.tidy(() => tf.mul(sigma, tf.add(tf.mul(gate!, tf.sub(1, sigma)), 1)));
        return tf.mul(tf.mul(dy!, up!), slope);
      },
      () => tf.mul(dy!, tf.mul(gate!, sigma)),
    ];
  },
});

/** silu(gate)·up, all of one shape. */
export function swiglu<T extends Tensor>(gate: T, up: T): T {
  return op([gate, up], null)[0] as T;
}
