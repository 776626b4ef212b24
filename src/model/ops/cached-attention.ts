/**
 * @file Attention of the next rows of one sequence: to the earlier rows, whose keys and values are
 * cached, and causally to one another. Forward only.
 *
 * Where the device has the fused kernel, a row gets the bits of attention over the whole sequence
 * and nothing is copied. Elsewhere cached and new rows are joined and the scores [H, M, P + M] are
 * formed. Keys and values lie row after row, [P, Hkv·D], so that a cache grows at its end.
 *
 * Shapes: P cached rows, M new rows, H query heads, Hkv key-value heads, D head width.
 */
import * as tf from '@tensorflow/tfjs-core';
import type { Tensor, Tensor2D } from '@tensorflow/tfjs-core';
import { FUSED } from '../../../tiers/device/native/kernels/fused-names.js';
import { hasKernel, runKernel } from './fused-kernel.js';

/** Added to scores of keys in the future; finite, so that no NaN can arise, and exp gives 0. */
const MASKED = -1e30;

/** Keys and values of one sequence's rows, [n, Hkv·D] each. */
export interface KeyValueRows {
  readonly keys: Tensor;
  readonly values: Tensor;
}

/** How rows divide into heads. */
export interface CachedHeads {
  readonly heads: number;
  /** A divisor of `heads`. */
  readonly keyHeads: number;
}

/**
 * softmax(q·kᵀ/√D + causal mask)·v over cached and new keys.
 *
 * @param q [M, H·D], of positions P … P + M - 1
 * @param added the new rows, M
 * @param cached the earlier rows, P; undefined when there are none
 * @returns [M, H·D]
 */
export function cachedAttention(
  q: Tensor,
  added: KeyValueRows,
  cached: KeyValueRows | undefined,
  { heads, keyHeads }: CachedHeads,
): Tensor2D {
  const width = q.shape[1]! / heads;
  if (hasKernel(FUSED.cachedAttention)) {
    const inputs = {
      q,
      k: added.keys,
      v: added.values,
      cachedK: cached?.keys,
      cachedV: cached?.values,
    };
    return runKernel(FUSED.cachedAttention, inputs, { heads, keyHeads, width })[0] as Tensor2D;
  }
  return tf.tidy(() => {
    const [count, group] = [q.shape[0], heads / keyHeads];
    const keys = headRows(joined(cached?.keys, added.keys), keyHeads);
    const total = keys.shape[1]!;
    // The query heads of one key-value head lie one after the other: one matrix of more rows.
    const queries = tf.reshape(headRows(tf.mul(q, 1 / Math.sqrt(width)), heads), [
      keyHeads,
      group * count,
      width,
    ]);
    const products = tf.reshape(tf.matMul(queries, keys, false, true), [heads, count, total]);
    const scores = count === 1 ? products : tf.add(products, futureMask(count, total));
    const weights = tf.reshape(tf.softmax(scores), [keyHeads, group * count, total]);
    const output = tf.matMul(weights, headRows(joined(cached?.values, added.values), keyHeads));
    const perHead = tf.reshape(output, [heads, count, width]);
    return tf.reshape(tf.transpose(perHead, [1, 0, 2]), [count, heads * width]);
  });
}

function joined(cached: Tensor | undefined, added: Tensor): Tensor {
  return cached === undefined ? added : tf.concat([cached, added], 0);
}

/** [n, heads·D] as [heads, n, D]. */
function headRows(x: Tensor, heads: number): Tensor {
  const [count, width] = x.shape as [number, number];
  return tf.transpose(tf.reshape(x, [count, heads, width / heads]), [1, 0, 2]);
}

/** [M, P + M]: 0 where new row i may see key j (j ≤ P + i), else MASKED. */
function futureMask(count: number, total: number): Tensor {
  const mask = new Float32Array(count * total);
  const first = total - count;
  for (let row = 0; row < count; row += 1) {
    mask.fill(MASKED, row * total + first + row + 1, (row + 1) * total);
  }
  return tf.tensor(mask, [count, total]);
}
