/**
 * @file Between rows [B*T, H*D] and heads [B, H, T, D].
 */
import * as tf from '@tensorflow/tfjs-core';
import type { Tensor, Tensor2D } from '@tensorflow/tfjs-core';

/** [B*T, H*D] as [B, H, T, D]. */
export function splitHeads(
  x: Tensor,
  [batchSize, length]: readonly [number, number],
  heads: number,
): Tensor {
  return tf.transpose(tf.reshape(x, [batchSize, length, heads, x.shape[1]! / heads]), [0, 2, 1, 3]);
}

/** [B, H, T, D] as [B*T, H*D]. */
export function mergeHeads(x: Tensor): Tensor2D {
  const [batchSize, heads, length, width] = x.shape as [number, number, number, number];
  return tf.reshape(tf.transpose(x, [0, 2, 1, 3]), [batchSize * length, heads * width]);
}
