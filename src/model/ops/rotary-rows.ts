/**
 * @file Rotary positions of rows that stand anywhere in a sequence, in generation. Forward only.
 *
 * The bits are those of rotary.ts for the same positions.
 */
import * as tf from '@tensorflow/tfjs-core';
import type { Tensor, Tensor2D } from '@tensorflow/tfjs-core';
import { FUSED } from '../../../tiers/device/native/kernels/fused-names.js';
import type { Rope } from '../rope.js';
import { hasKernel } from './fused-kernel.js';
import { rotaryTable, rotateFused } from './rotary.js';

/** Where rows stand, one position each. */
export interface RowsAt {
  /** Position of the first row. */
  readonly first: number;
  /** More than any position; tables are kept by it. */
  readonly limit: number;
}

/**
 * Turns queries or keys of positions first … first + M - 1.
 *
 * @param x [M, H·D], D even
 * @returns [M, H·D]
 */
export function rotaryRows(
  x: Tensor,
  heads: number,
  { first, limit }: RowsAt,
  rope: Rope,
): Tensor2D {
  return tf.tidy(() => {
    const [count, columns] = x.shape as [number, number];
    const width = columns / heads;
    const positions = Int32Array.from({ length: count }, (_, row) => first + row);
    const table = rotaryTable({ length: limit, positions }, rope);
    if (hasKernel(FUSED.rotary)) {
      const attrs = { width, length: count, rowsPerPosition: heads, direction: 1 } as const;
      return rotateFused(x, table, attrs) as Tensor2D;
    }
    const angles = tf.reshape(table, [2 * count, 1, width / 2]);
    const [cos, sin] = tf.split(angles, 2, 0) as [Tensor, Tensor];
    const [low, high] = tf.split(tf.reshape(x, [count, heads, width]), 2, 2) as [Tensor, Tensor];
    const turnedLow = tf.sub(tf.mul(low, cos), tf.mul(high, sin));
    const turnedHigh = tf.add(tf.mul(high, cos), tf.mul(low, sin));
    return tf.reshape(tf.concat([turnedLow, turnedHigh], 2), [count, columns]);
  });
}
