/**
 * @file Causal attention of rows [B·T, …] as projections give and take them, with rotary positions.
 *
 * Where the device has the fused kernel, heads are read where they lie: no part is cut out, no axis
 * swapped, and queries, keys and values that come as one tensor get one gradient. Elsewhere rows
 * are split, transposed and joined around causalAttention.
 */
import * as tf from '@tensorflow/tfjs-core';
import type { Tensor, Tensor2D } from '@tensorflow/tfjs-core';
import { mergeHeads, splitHeads } from '../attention-heads.js';
import { causalAttention } from './causal-attention.js';
import { fusedAttention, hasFusedAttention } from './fused-attention.js';
import { rotary } from './rotary.js';

/** How rows are divided. */
export interface AttentionShape {
  readonly batch: number;
  readonly length: number;
  readonly heads: number;
  /** A divisor of `heads`. */
  readonly keyHeads: number;
  /** Base of the rotary frequencies; without it queries and keys are taken as they are. */
  readonly theta?: number;
}

/**
 * Attention of queries, keys and values in one tensor, as GPT-2's c_attn gives them.
 *
 * @param qkv [B·T, 3·H·D]: queries, keys, values
 * @param documents int32 [B, T]: a query sees only keys of its own document
 * @returns [B·T, H·D]
 */
export function joinedAttention(
  qkv: Tensor,
  { batch, length, heads }: Omit<AttentionShape, 'keyHeads' | 'theta'>,
  documents?: Tensor,
): Tensor2D {
  if (hasFusedAttention()) {
    const width = qkv.shape[1]! / 3 / heads;
    const attrs = { layout: 'joined', batch, length, heads, keyHeads: heads, width } as const;
    return fusedAttention([qkv], documents, attrs) as Tensor2D;
  }
  const parts = tf.split(qkv, 3, 1).map((part) => splitHeads(part, [batch, length], heads));
  const [q, k, v] = parts as [Tensor, Tensor, Tensor];
  return mergeHeads(causalAttention(q, k, v, documents));
}

/**
 * Attention of queries, keys and values in a tensor each.
 *
 * @param q [B·T, H·D]
 * @param k [B·T, Hkv·D]
 * @param v [B·T, Hkv·D]
 * @param documents int32 [B, T]: a query sees only keys of its own document
 * @returns [B·T, H·D]
 */
export function rowAttention(
  [q, k, v]: readonly [Tensor, Tensor, Tensor],
  shape: AttentionShape,
  documents?: Tensor,
): Tensor2D {
  const { batch, length, heads, keyHeads, theta } = shape;
  if (hasFusedAttention()) {
    const width = q.shape[1]! / heads;
    return fusedAttention([q, k, v], documents, { ...shape, layout: 'rows', width }) as Tensor2D;
  }
  const turn = (x: Tensor, count: number): Tensor => {
    const split = splitHeads(x, [batch, length], count);
    return theta === undefined ? split : rotary(split, theta);
  };
  const values = splitHeads(v, [batch, length], keyHeads);
  return mergeHeads(causalAttention(turn(q, heads), turn(k, keyHeads), values, documents));
}
