/**
 * @file GPT-2's activation, GELU in its tanh form (Hendrycks and Gimpel 2016, arXiv 1606.08415):
 * y = x/2·(1 + t), t = tanh(√(2/π)·(x + 0.044715·x³)).
 *
 * Saves x only: dy/dx = (1 + t)/2 + x/2·(1 - t²)·√(2/π)·(1 + 3·0.044715·x²).
 */
import * as tf from '@tensorflow/tfjs-core';
import type { Tensor } from '@tensorflow/tfjs-core';
import { defineOp } from '../../../tiers/device/custom-op.js';
import { FUSED } from '../../../tiers/device/native/kernels/fused-names.js';
import { consume } from './consume.js';
import { hasKernel, runKernel } from './fused-kernel.js';

const SQRT_2_OVER_PI = Math.sqrt(2 / Math.PI);
const CUBIC = 0.044715;

/** √(2/π)·x·(1 + cubic·x²); with the cubic of the formula, what tanh is taken of. */
function scaledCubic(x: Tensor, cubic: number): Tensor {
  const square = consume(tf.square(x), (x2) => tf.mul(x2, cubic * SQRT_2_OVER_PI));
  const bracket = consume(square, (term) => tf.add(term, SQRT_2_OVER_PI));
  return consume(bracket, (factor) => tf.mul(x, factor));
}

const op = defineOp<null>('geluNew', {
  forward: ([x]) => {
    const t = consume(scaledCubic(x!, CUBIC), tf.tanh);
    const onePlus = consume(t, (tanh) => tf.add(tanh, 1));
    const product = consume(onePlus, (factor) => tf.mul(x!, factor));
    return { outputs: [consume(product, (twice) => tf.mul(twice, 0.5))], saved: [x!] };
  },
  backward: ([dy], [x]) => {
    const t = consume(scaledCubic(x!, CUBIC), tf.tanh);
    const squared = consume(tf.square(t), (t2) => tf.sub(1, t2));
    // The part of twice the slope that comes from t.
    const inner = consume(scaledCubic(x!, 3 * CUBIC), (cubic) => tf.mul(cubic, squared));
    squared.dispose();
    const twiceSlope = consume(t, (tanh) => consume(tf.add(tanh, 1), (a) => tf.add(a, inner)));
    inner.dispose();
    return [
      consume(
        consume(twiceSlope, (twice) => tf.mul(twice, 0.5)),
        (s) => tf.mul(dy!, s),
      ),
    ];
  },
});

const fusedOp = defineOp<null>('geluNew', {
  forward: ([x]) => ({ outputs: runKernel(FUSED.geluNew, { x: x! }), saved: [x!] }),
  backward: ([dy], [x]) => runKernel(FUSED.geluNewGrad, { dy: dy!, x: x! }),
});

/** GELU (tanh form) of every element. */
export function geluNew<T extends Tensor>(x: T): T {
  return (hasKernel(FUSED.geluNew) ? fusedOp : op)([x], null)[0] as T;
}
