/**
 * @file Rotary position embedding as Hugging Face's Llama applies it: element i of the first half
 * of a head and element i of the second half form a pair, turned by position·theta^(-2i/D) (Su et
 * al. 2021, arXiv 2104.09864).
 *
 * A rotation is linear: its reverse is the rotation by the negative angle, and nothing is saved.
 */
import * as tf from '@tensorflow/tfjs-core';
import type { Tensor, Tensor4D } from '@tensorflow/tfjs-core';
import { defineOp } from '../../../tiers/device/custom-op.js';
import { FUSED, type RotaryAttrs } from '../../../tiers/device/native/kernels/fused-names.js';
import { hasKernel, runKernel } from './fused-kernel.js';

interface AngleTables {
  readonly cos: Float32Array;
  readonly sin: Float32Array;
  /** Both, [2, T, D/2]; the two above are its halves. */
  readonly both: Float32Array;
}

/** Tables by length, head width and theta; a run uses few of them. The oldest goes beyond this. */
const CACHED_TABLES = 16;
const cache = new Map<string, AngleTables>();

/**
 * cos and sin of position·theta^(-2i/D), [T, D/2] each. Frequencies and angles are rounded to
 * float32 as transformers computes them, so that long positions agree.
 */
function angleTables(length: number, headWidth: number, theta: number): AngleTables {
  const key = `${length},${headWidth},${theta}`;
  const known = cache.get(key);
  if (known !== undefined) return known;
  const half = headWidth / 2;
  const both = new Float32Array(2 * length * half);
  const cos = both.subarray(0, length * half);
  const sin = both.subarray(length * half);
  for (let i = 0; i < half; i += 1) {
    const exponent = Math.fround((2 * i) / headWidth);
    const frequency = Math.fround(1 / Math.fround(theta ** exponent));
    for (let position = 0; position < length; position += 1) {
      const angle = Math.fround(position * frequency);
      cos[position * half + i] = Math.cos(angle);
      sin[position * half + i] = Math.sin(angle);
    }
  }
  const oldest = cache.keys().next().value;
  if (cache.size >= CACHED_TABLES && oldest !== undefined) cache.delete(oldest);
  const tables = { cos, sin, both };
  cache.set(key, tables);
  return tables;
}

function rotate(x: Tensor, theta: number, direction: 1 | -1): Tensor {
  const length = x.shape[2]!;
  const headWidth = x.shape[3]!;
  const tables = angleTables(length, headWidth, theta);
  return tf.tidy(() => {
    const cos = tf.tensor2d(tables.cos, [length, headWidth / 2]);
    const table = tf.tensor2d(tables.sin, [length, headWidth / 2]);
    const sin = direction === 1 ? table : tf.neg(table);
    const [first, second] = tf.split(x, 2, 3);
    const turnedFirst = tf.tidy(() => tf.sub(tf.mul(first!, cos), tf.mul(second!, sin)));
    const turnedSecond = tf.tidy(() => tf.add(tf.mul(second!, cos), tf.mul(first!, sin)));
    first!.dispose();
    second!.dispose();
    return tf.concat([turnedFirst, turnedSecond], 3);
  });
}

/** The angles' cosines and sines on the device, [2, T, D/2]: the fused kernel's table. */
export function rotaryTable(length: number, headWidth: number, theta: number): Tensor {
  return tf.tensor(angleTables(length, headWidth, theta).both, [2, length, headWidth / 2]);
}

/** x turned by the fused kernel; see RotaryAttrs for how its rows lie. */
export function rotateFused(x: Tensor, table: Tensor, attrs: RotaryAttrs): Tensor {
  return runKernel(FUSED.rotary, { x, table }, attrs)[0]!;
}

function rotatePlanes(x: Tensor, theta: number, direction: 1 | -1): Tensor {
  if (!hasKernel(FUSED.rotary)) return rotate(x, theta, direction);
  const [, , length, width] = x.shape as [number, number, number, number];
  const table = rotaryTable(length, width, theta);
  return rotateFused(x, table, { width, length, rowsPerPosition: 1, direction });
}

const op = defineOp<{ readonly theta: number }>('rotary', {
  forward: ([x], { theta }) => ({ outputs: [rotatePlanes(x!, theta, 1)], saved: [] }),
  backward: ([dy], _saved, { theta }) => [rotatePlanes(dy!, theta, -1)],
});

/**
 * Turns queries or keys by their positions 0 … T-1.
 *
 * @param x [B, H, T, D], D even
 * @param theta base of the frequencies, `rope_theta`
 * @returns [B, H, T, D]
 */
export function rotary(x: Tensor, theta: number): Tensor4D {
  return op([x], { theta })[0] as Tensor4D;
}
