/**
 * @file How a layer's projections become attended rows: the one place where batch shape, packed
 * documents, positions and, in generation, earlier keys and values come in.
 *
 * A family's layer is written against `Attention` and knows none of them.
 */
import type { Tensor, Tensor2D } from '@tensorflow/tfjs-core';
import type { BlockAux } from './block.js';
import { positionsOf } from './block-params.js';
import { joinedAttention, rowAttention, type AttentionShape } from './ops/self-attention.js';
import { checkSequenceLength, type SequenceLimit } from './sequence-limit.js';

/** How rows of queries, keys and values divide into heads, how they are turned, and how far. */
export interface HeadShape extends Omit<AttentionShape, 'batch' | 'length'> {
  /** What no sequence may exceed. */
  readonly limits?: readonly SequenceLimit[];
}

/** Causal attention over a block's rows; N rows, H query heads, Hkv key-value heads, D head width. */
export interface Attention {
  /**
   * @param qkv [N, H·D], [N, Hkv·D], [N, Hkv·D]
   * @returns [N, H·D]
   * @throws MODEL_UNSUPPORTED where a sequence is longer than the shape's limits allow
   */
  rows(qkv: readonly [Tensor, Tensor, Tensor], shape: HeadShape): Tensor2D;
  /**
   * Without rotary positions.
   *
   * @param qkv [N, 3·H·D]: queries, keys, values
   * @returns [N, H·D]
   */
  joined(qkv: Tensor, heads: number): Tensor2D;
}

/**
 * Attention within B whole sequences of T rows each; packed documents do not see one another, and
 * their positions are those that the batch says.
 *
 * @throws DATA_INVALID where a position is not below T
 */
export function sequenceAttention(
  [batch, length]: readonly [number, number],
  aux: BlockAux,
): Attention {
  const documents = aux.tensors['documents'];
  const positions = positionsOf(aux.fields);
  return {
    rows: (qkv, { limits = [], ...shape }) => {
      if (limits.length > 0) checkSequenceLength(limits, longestSequence(aux.fields, length));
      return rowAttention(qkv, { batch, length, ...shape }, { documents, positions });
    },
    joined: (qkv, heads) => joinedAttention(qkv, { batch, length, heads }, documents),
  };
}

/** Length of the longest document of rows of T tokens: by neighbours' sight of one another, or by
 * their positions where those go further. */
function longestSequence(fields: BlockAux['fields'], length: number): number {
  const [documents, positions] = [fields['documents']?.data, positionsOf(fields)];
  if (documents === undefined || positions === undefined) return length;
  let longest = 1;
  let first = 0;
  for (const [at, position] of positions.entries()) {
    const joins = at % length > 0 && documents[at] === documents[at - 1];
    if (!joins) first = at;
    longest = Math.max(longest, at - first + 1, position + 1);
  }
  return longest;
}
