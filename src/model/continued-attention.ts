/**
 * @file Attention of a sequence's next tokens, in generation: to the keys and values of the earlier
 * ones, which the engine kept, and to their own.
 *
 * Keys are kept as they are compared, turned by their positions; a position never changes.
 */
import * as tf from '@tensorflow/tfjs-core';
import type { Tensor, Tensor2D } from '@tensorflow/tfjs-core';
import { assert } from '../../core/errors.js';
import type { SequencePlace } from './block.js';
import { cachedAttention, type CachedHeads, type KeyValueRows } from './ops/cached-attention.js';
import { rotaryRows } from './ops/rotary-rows.js';
import type { Rope } from './rope.js';
import type { Attention } from './sequence-attention.js';
import { checkSequenceLength } from './sequence-limit.js';

/** An attention that remembers what later tokens need. */
export interface ContinuedAttention extends Attention {
  /** Keys and values of the new tokens, [M, Hkv·D] each, as the one call made them. */
  added(): Tensor[];
}

/**
 * Attention of the tokens at `place`, once.
 *
 * @param cached keys and values of the tokens before them, [P, Hkv·D] each; `[]` where P is 0
 */
export function continuedAttention(
  cached: readonly Tensor[],
  place: SequencePlace,
): ContinuedAttention {
  const [keys, values] = cached;
  const earlier = keys === undefined || values === undefined ? undefined : { keys, values };
  let added: KeyValueRows | undefined;
  const attend = (q: Tensor, own: KeyValueRows, shape: CachedHeads): Tensor2D => {
    assert(added === undefined, 'a layer attends once');
    added = own;
    return cachedAttention(q, own, earlier, shape);
  };
  const turn = (x: Tensor, heads: number, rope: Rope | undefined): Tensor =>
    rope === undefined ? x : rotaryRows(x, heads, place, rope);
  return {
    rows: ([q, k, v], { limits = [], rope, heads, keyHeads }) => {
      checkSequenceLength(limits, place.first + q.shape[0]);
      const own = { keys: turn(k, keyHeads, rope), values: v };
      return attend(turn(q, heads, rope), own, { heads, keyHeads });
    },
    joined: (qkv, heads) => {
      const [q, k, v] = tf.split(qkv, 3, 1) as [Tensor, Tensor, Tensor];
      return attend(q, { keys: k, values: v }, { heads, keyHeads: heads });
    },
    added: () => {
      assert(added !== undefined, 'the layer has attended');
      return [added.keys, added.values];
    },
  };
}
