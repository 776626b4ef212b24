/**
 * @file Causal scaled dot-product attention with grouped heads, tiled over query rows.
 *
 * For each chunk of at most QUERY_ROWS query rows, scores against the keys up to the chunk's last
 * row are formed, normalised and multiplied with the values, so that no [B, H, T, T] tensor exists:
 * the largest temporary has B·H·QUERY_ROWS·T elements. Saves q, k, v and the log-sum-exp of each
 * score row; the reverse pass computes the probabilities again (Dao et al. 2022, arXiv 2205.14135):
 *
 *     P = exp(S - lse),  dV = Pᵀ·dO,  dP = dO·Vᵀ,  dS = P·(dP - rowsum(P·dP)),
 *     dQ = scale·dS·K,  dK = scale·dSᵀ·Q
 *
 * Query head h reads key-value head floor(h / (H/Hkv)). The H/Hkv query heads of one key-value head
 * lie one after the other, so a product treats them as one matrix of more rows, and keys are never
 * repeated. Chunk sizes order the sums of dK and dV and are functions of shape only.
 */
import * as tf from '@tensorflow/tfjs-core';
import type { Tensor, Tensor4D } from '@tensorflow/tfjs-core';
import { defineOp } from '../../../tiers/device/custom-op.js';
import { consume } from './consume.js';
import { fusedAttention, hasFusedAttention } from './fused-attention.js';

/** Query rows per chunk: at T = 1024 the temporaries are an eighth of the full score matrix. */
const QUERY_ROWS = 128;

/** Added to scores of keys in the future; finite, so that no NaN can arise, and exp gives 0. */
const MASKED = -1e30;

interface Sizes {
  readonly batch: number;
  readonly keyHeads: number;
  /** Query heads per key-value head. */
  readonly group: number;
  readonly length: number;
  readonly width: number;
}

/** Query rows `first … first + rows` see keys `0 … first + rows`. */
interface Chunk extends Sizes {
  readonly first: number;
  readonly rows: number;
}

function sizesOf(q: Tensor, k: Tensor): Sizes {
  const [batch, heads, length, width] = q.shape as [number, number, number, number];
  const keyHeads = k.shape[1]!;
  return { batch, keyHeads, group: heads / keyHeads, length, width };
}

function chunksOf(sizes: Sizes): Chunk[] {
  const count = Math.ceil(sizes.length / QUERY_ROWS);
  return Array.from({ length: count }, (_, index) => {
    const first = index * QUERY_ROWS;
    return { ...sizes, first, rows: Math.min(QUERY_ROWS, sizes.length - first) };
  });
}

/** The chunk's rows of x [B, H, T, D or 1], as [B·Hkv, group·rows, D or 1]. */
function queryRows(x: Tensor, chunk: Chunk): Tensor {
  const { batch, keyHeads, group, rows, first } = chunk;
  const last = x.shape[3]!;
  const part =
    rows === chunk.length
      ? x
      : tf.slice(x, [0, 0, first, 0], [batch, keyHeads * group, rows, last]);
  return tf.reshape(part, [batch * keyHeads, group * rows, last]);
}

/** The keys or values that the chunk sees, [B·Hkv, keys, D]. */
function seenRows(x: Tensor, chunk: Chunk): Tensor {
  const { batch, keyHeads, width } = chunk;
  const keys = chunk.first + chunk.rows;
  const part =
    keys === chunk.length ? x : tf.slice(x, [0, 0, 0, 0], [batch, keyHeads, keys, width]);
  return tf.reshape(part, [batch * keyHeads, keys, width]);
}

/** [rows, keys]: 0 where query row `first + i` may see key j (j ≤ first + i), else MASKED. */
function causalMask({ first, rows }: Chunk): Tensor {
  const diagonal = new Float32Array(rows * rows);
  for (let i = 0; i < rows; i += 1) diagonal.fill(MASKED, i * rows + i + 1, (i + 1) * rows);
  return tf.pad(tf.tensor2d(diagonal, [rows, rows]), [
    [0, 0],
    [first, 0],
  ]);
}

/** [B, 1, rows, keys]: 0 where query and key are of one document, else MASKED. */
function documentMask(documents: Tensor, { batch, rows, first }: Chunk): Tensor {
  const queries = tf.slice(documents, [0, first], [batch, rows]);
  const keys = tf.slice(documents, [0, 0], [batch, first + rows]);
  const differs = tf.notEqual(tf.expandDims(queries, 2), tf.expandDims(keys, 1));
  return tf.expandDims(tf.mul(tf.cast(differs, 'float32'), MASKED), 1);
}

/** Masked scaled scores of the chunk, [B·Hkv, group·rows, keys]. */
function scoresOf(q: Tensor, k: Tensor, documents: Tensor | undefined, chunk: Chunk): Tensor {
  const { batch, keyHeads, group, rows, width, first } = chunk;
  return tf.tidy(() => {
    const scaled = tf.mul(queryRows(q, chunk), 1 / Math.sqrt(width));
    const products = tf.matMul(scaled, seenRows(k, chunk), false, true);
    const perHead = tf.reshape(products, [batch, keyHeads * group, rows, first + rows]);
    const causal = tf.add(perHead, causalMask(chunk));
    const masked =
      documents === undefined
        ? causal
        : consume(causal, (scores) => tf.add(scores, documentMask(documents, chunk)));
    return tf.reshape(masked, products.shape);
  });
}

/** Back from chunks to [B, H, T, D or 1]. */
function joinRows(parts: readonly Tensor[], chunks: readonly Chunk[]): Tensor {
  const shaped = parts.map((part, index) => {
    const { batch, keyHeads, group, rows } = chunks[index]!;
    return tf.reshape(part, [batch, keyHeads * group, rows, part.shape[2]!]);
  });
  return shaped.length === 1 ? shaped[0]! : tf.concat(shaped, 2);
}

function forwardChunk(
  [q, k, v, documents]: readonly Tensor[],
  chunk: Chunk,
): [output: Tensor, lse: Tensor] {
  return tf.tidy(() => {
    const scores = scoresOf(q!, k!, documents, chunk);
    const largest = tf.max(scores, -1, true);
    const weights = consume(
      consume(scores, (value) => tf.sub(value, largest)),
      tf.exp,
    );
    const total = tf.sum(weights, -1, true);
    const values = tf.matMul(weights, seenRows(v!, chunk));
    return [tf.div(values, total), tf.add(largest, tf.log(total))];
  });
}

/** Contributions of one chunk: dq rows, and dk, dv of the keys it sees. */
function backwardChunk(
  dy: Tensor,
  [q, k, v, lse, documents]: readonly Tensor[],
  chunk: Chunk,
): [Tensor, Tensor, Tensor] {
  return tf.tidy(() => {
    const scores = scoresOf(q!, k!, documents, chunk);
    const logs = consume(scores, (value) => tf.sub(value, queryRows(lse!, chunk)));
    const probabilities = consume(logs, tf.exp);
    const dOut = queryRows(dy, chunk);
    const dv = tf.matMul(probabilities, dOut, true);
    const dProbabilities = tf.matMul(dOut, seenRows(v!, chunk), false, true);
    const products = tf.mul(probabilities, dProbabilities);
    const rowSums = consume(products, (value) => tf.sum(value, -1, true));
    const centred = consume(dProbabilities, (value) => tf.sub(value, rowSums));
    const dScores = consume(probabilities, (value) => tf.mul(value, centred));
    centred.dispose();
    const scale = 1 / Math.sqrt(chunk.width);
    const dq = tf.mul(tf.matMul(dScores, seenRows(k!, chunk)), scale);
    const dk = tf.mul(tf.matMul(dScores, queryRows(q!, chunk), true), scale);
    return [dq, dk, dv];
  });
}

/** `total` + `part` on the first rows; disposes both. The last chunk, which sees all, comes first. */
function addRows(total: Tensor | undefined, part: Tensor): Tensor {
  if (total === undefined) return part;
  const sum = tf.tidy(() => {
    const missing = total.shape[1]! - part.shape[1]!;
    return tf.add(
      total,
      tf.pad(part, [
        [0, 0],
        [0, missing],
        [0, 0],
      ]),
    );
  });
  total.dispose();
  part.dispose();
  return sum;
}

const op = defineOp<null>('causalAttention', {
  forward: (inputs) => {
    const [q, k, v, ...documents] = inputs;
    const chunks = chunksOf(sizesOf(q!, k!));
    const parts = chunks.map((chunk) => forwardChunk(inputs, chunk));
    const output = joinRows(
      parts.map(([values]) => values),
      chunks,
    );
    const lse = joinRows(
      parts.map(([, part]) => part),
      chunks,
    );
    return { outputs: [output], saved: [q!, k!, v!, lse, ...documents] };
  },
  backward: ([dy], saved) => {
    const [q, k] = saved as [Tensor, Tensor];
    const chunks = chunksOf(sizesOf(q, k));
    const dqs: Tensor[] = [];
    let dk: Tensor | undefined;
    let dv: Tensor | undefined;
    for (const chunk of chunks.toReversed()) {
      const [dqRows, dkPart, dvPart] = backwardChunk(dy!, saved, chunk);
      dqs.unshift(dqRows);
      dk = addRows(dk, dkPart);
      dv = addRows(dv, dvPart);
    }
    const gradients = [joinRows(dqs, chunks), tf.reshape(dk!, k.shape), tf.reshape(dv!, k.shape)];
    return saved.length === 5 ? [...gradients, null] : gradients;
  },
});

/**
 * softmax(q·kᵀ/√D + causal mask)·v, by the fused kernel where the device has it.
 *
 * @param q [B, H, T, D]
 * @param k [B, Hkv, T, D], Hkv a divisor of H
 * @param v [B, Hkv, T, D]
 * @param documents int32 [B, T]: a query sees only keys of its own document
 * @returns [B, H, T, D]
 */
export function causalAttention(q: Tensor, k: Tensor, v: Tensor, documents?: Tensor): Tensor4D {
  if (hasFusedAttention()) {
    const { batch, keyHeads, group, length, width } = sizesOf(q, k);
    const heads = keyHeads * group;
    const attrs = { layout: 'planes', batch, length, heads, keyHeads, width } as const;
    return fusedAttention([q, k, v], documents, attrs) as Tensor4D;
  }
  return op(documents === undefined ? [q, k, v] : [q, k, v, documents], null)[0] as Tensor4D;
}
