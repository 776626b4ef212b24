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
import type { Rope } from '../rope.js';
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
  /** Rotary positions; without them queries and keys are taken as they are. */
  readonly rope?: Rope;
}

/** What rows of packed documents need besides. */
export interface PackedRows {
  /** int32 [B, T]: a query sees only keys of its own document. */
  readonly documents?: Tensor | undefined;
  /** [B·T], each 0 … T-1: the place of a row in its document. */
  readonly positions?: Int32Array | undefined;
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
  { batch, length, heads }: Omit<AttentionShape, 'keyHeads' | 'rope'>,
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
 * @returns [B·T, H·D]
 */
export function rowAttention(
  [q, k, v]: readonly [Tensor, Tensor, Tensor],
  shape: AttentionShape,
  { documents, positions }: PackedRows = {},
): Tensor2D {
  const { batch, length, heads, keyHeads, rope } = shape;
  if (hasFusedAttention()) {
    const width = q.shape[1]! / heads;
    const attrs = { ...shape, layout: 'rows', width, ...(positions && { positions }) } as const;
    return fusedAttention([q, k, v], documents, attrs) as Tensor2D;
  }
  const turn = (x: Tensor, count: number): Tensor => {
    const split = splitHeads(x, [batch, length], count);
    return rope === undefined ? split : rotary(split, rope, positions);
  };
  const values = splitHeads(v, [batch, length], keyHeads);
  return mergeHeads(causalAttention(turn(q, heads), turn(k, keyHeads), values, documents));
}
