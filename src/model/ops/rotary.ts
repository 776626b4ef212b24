/**
 * @file Rotary position embedding as Hugging Face's Llama applies it: element i of the first half
 * of a head and element i of the second half form a pair, turned by the angle of its position (Su et
 * al. 2021, arXiv 2104.09864; the angles are src/model/rope.ts's).
 *
 * Positions are 0 … T-1 in every sequence, or given per row where several documents share a
 * sequence. A rotation is linear: its reverse is the rotation by the negative angle, and nothing is
 * saved.
 */
import * as tf from '@tensorflow/tfjs-core';
import type { Tensor, Tensor4D } from '@tensorflow/tfjs-core';
import { defineOp } from '../../../tiers/device/custom-op.js';
import { FUSED, type RotaryAttrs } from '../../../tiers/device/native/kernels/fused-names.js';
import type { Rope } from '../rope.js';
import { hasKernel, runKernel } from './fused-kernel.js';

/** Where rows stand: all positions of T in turn, or one position below T for each of B·T rows. */
export interface RowPositions {
  /** T */
  readonly length: number;
  /** [B·T], each 0 … T-1 */
  readonly positions?: Int32Array;
}

/** Tables by length and frequencies; a run uses few of them. The oldest goes beyond this. */
const CACHED_TABLES = 16;
const cache = new Map<string, Float32Array>();

/** Cosines, then sines, of positions 0 … T-1, times the scaling: [2, T, D/2]. */
function angleTable(length: number, rope: Rope): Float32Array {
  const key = `${length},${rope.key}`;
  const known = cache.get(key);
  if (known !== undefined) return known;
  const half = rope.inverseFrequencies.length;
  const scaling = Math.fround(rope.attentionScaling);
  const table = new Float32Array(2 * length * half);
  for (const [i, frequency] of rope.inverseFrequencies.entries()) {
    for (let position = 0; position < length; position += 1) {
      // Rounded to float32 as transformers computes them, so that long positions agree.
      const angle = Math.fround(position * frequency);
      const at = position * half + i;
      table[at] = Math.fround(Math.cos(angle)) * scaling;
      table[length * half + at] = Math.fround(Math.sin(angle)) * scaling;
    }
  }
  const oldest = cache.keys().next().value;
  if (cache.size >= CACHED_TABLES && oldest !== undefined) cache.delete(oldest);
  cache.set(key, table);
  return table;
}

/** The table's rows of the given positions: [2, n, D/2]. */
function rowsOf({ length, positions }: RowPositions, rope: Rope): Float32Array {
  const table = angleTable(length, rope);
  if (positions === undefined) return table;
  const half = rope.inverseFrequencies.length;
  const rows = new Float32Array(2 * positions.length * half);
  for (let part = 0; part < 2; part += 1) {
    for (const [row, position] of positions.entries()) {
      const from = (part * length + position) * half;
      rows.set(table.subarray(from, from + half), (part * positions.length + row) * half);
    }
  }
  return rows;
}

/** Cosines and sines on the device, [2, T, D/2], or [2, B·T, D/2] where positions are given. */
export function rotaryTable(where: RowPositions, rope: Rope): Tensor {
  const count = where.positions?.length ?? where.length;
  return tf.tensor(rowsOf(where, rope), [2, count, rope.inverseFrequencies.length]);
}

function rotate(x: Tensor, { rope, positions }: RotaryOptions, direction: 1 | -1): Tensor {
  const [batch, , length] = x.shape as [number, number, number, number];
  return tf.tidy(() => {
    const table = rotaryTable({ length, ...(positions && { positions }) }, rope);
    const [cosines, sines] = tf.split(table, 2, 0);
    const half = rope.inverseFrequencies.length;
    const shape = positions === undefined ? [length, half] : [batch, 1, length, half];
    const cos = tf.reshape(cosines!, shape);
    const sin = tf.reshape(direction === 1 ? sines! : tf.neg(sines!), shape);
    const [first, second] = tf.split(x, 2, 3);
    const turnedFirst = tf.tidy(() => tf.sub(tf.mul(first!, cos), tf.mul(second!, sin)));
    const turnedSecond = tf.tidy(() => tf.add(tf.mul(second!, cos), tf.mul(first!, sin)));
    first!.dispose();
    second!.dispose();
    return tf.concat([turnedFirst, turnedSecond], 3);
  });
}

/** x turned by the fused kernel; see RotaryAttrs for how its rows lie. */
export function rotateFused(x: Tensor, table: Tensor, attrs: RotaryAttrs): Tensor {
  return runKernel(FUSED.rotary, { x, table }, attrs)[0]!;
}

function rotatePlanes(x: Tensor, options: RotaryOptions, direction: 1 | -1): Tensor {
  // The kernel's rows lie head after head here, so that rows of different batches share a place.
  if (!hasKernel(FUSED.rotary) || options.positions !== undefined) {
    return rotate(x, options, direction);
  }
  const [, , length, width] = x.shape as [number, number, number, number];
  const table = rotaryTable({ length }, options.rope);
  return rotateFused(x, table, { width, length, rowsPerPosition: 1, direction });
}

interface RotaryOptions {
  readonly rope: Rope;
  readonly positions?: Int32Array;
}

const op = defineOp<RotaryOptions>('rotary', {
  forward: ([x], options) => ({ outputs: [rotatePlanes(x!, options, 1)], saved: [] }),
  backward: ([dy], _saved, options) => [rotatePlanes(dy!, options, -1)],
});

/**
 * Turns queries or keys by their positions.
 *
 * @param x [B, H, T, D], D even
 * @param positions [B·T], each 0 … T-1; default 0 … T-1 in every sequence
 * @returns [B, H, T, D]
 */
export function rotary(x: Tensor, rope: Rope, positions?: Int32Array): Tensor4D {
  return op([x], { rope, ...(positions && { positions }) })[0] as Tensor4D;
}
