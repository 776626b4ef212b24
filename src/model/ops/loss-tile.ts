/**
 * @file Cross-entropy over one tile of the vocabulary: products with the tile, and the online
 * softmax between them (formulas: src/model/vocabulary-head.ts).
 *
 * Where the device has the fused kernels, what lies between the products is one launch, and the
 * gradient takes the place of the logits.
 *
 * Shapes: N = B*T, C hidden, R rows of the tile, n tokens of a chunk.
 */
import * as tf from '@tensorflow/tfjs-core';
import type { Tensor, Tensor1D } from '@tensorflow/tfjs-core';
import {
  FUSED,
  type LossTileAttrs,
  type LossTileGradAttrs,
} from '../../../tiers/device/native/kernels/fused-names.js';
import type { Tile } from '../block.js';
import { IGNORED_LABEL } from '../language-model-batch.js';
import { consume } from './consume.js';
import { hasKernel, runKernel } from './fused-kernel.js';

/** Tokens per product with a tile, which bounds the logits at hand to [1024, R]. */
const TOKEN_CHUNK = 1024;

/** Running maximum before the first tile: exp(-1e30 - m) is 0 for every finite m. */
export const NO_MAXIMUM = -1e30;

/** A range of tokens. */
interface TokenChunk {
  readonly first: number;
  readonly size: number;
}

/**
 * Target id of each position, [N] int32: the next position's label; -100 at a sequence's end.
 *
 * @param labels [B, T] int32
 */
export function shiftedTargets(labels: Tensor): Tensor1D {
  const [batchSize, length] = labels.shape as [number, number];
  const extended = tf.pad(
    labels,
    [
      [0, 0],
      [0, 1],
    ],
    IGNORED_LABEL,
  );
  return tf.reshape(tf.slice(extended, [0, 1], [batchSize, length]), [batchSize * length]);
}

/** 1 where a target counts, else 0. */
export function maskOf(targets: Tensor1D): Tensor {
  return tf.cast(tf.greaterEqual(targets, tf.scalar(0, 'int32')), 'float32');
}

/**
 * The carry after `tile`: running maximum, sum of exponentials, target logit, [N] each.
 *
 * @param h [N, C]
 * @param carry the same before it
 * @param labels [B, T] int32
 */
export function forwardTile(
  tile: Tile,
  h: Tensor,
  carry: readonly Tensor[],
  labels: Tensor,
): Tensor[] {
  const statesOf = hasKernel(FUSED.lossTile)
    ? fusedStates(tile, carry, labels)
    : plainStates(tile, carry, shiftedTargets(labels));
  const parts = tokenChunks(h.shape[0]).map((chunk) =>
    tf.tidy(() => {
      const logits = tf.matMul(rowsOf(h, chunk), tile.weight, false, true);
      return statesOf(logits, chunk);
    }),
  );
  return [0, 1, 2].map((index) => join(parts.map((part) => part[index]!)));
}

/**
 * Gradients through one tile.
 *
 * @param h [N, C]
 * @param lse log-sum-exp of each token's logits, [N]
 * @param labels [B, T] int32
 * @param lossScale factor of each loss term
 * @returns [dTile [R, C], dh [N, C]]
 */
export function backwardTile(
  tile: Tile,
  h: Tensor,
  lse: Tensor,
  labels: Tensor,
  lossScale: number,
): [dTile: Tensor, dh: Tensor] {
  const gradientOf = hasKernel(FUSED.lossTileGrad)
    ? fusedGradient(tile, lse, labels, lossScale)
    : plainGradient(tile, lse, shiftedTargets(labels), lossScale);
  const dhs: Tensor[] = [];
  let dTile: Tensor | undefined;
  for (const chunk of tokenChunks(h.shape[0])) {
    const [dTilePart, dhPart] = tf.tidy((): [Tensor, Tensor] => {
      const rows = rowsOf(h, chunk);
      const logits = tf.matMul(rows, tile.weight, false, true);
      const dLogits = gradientOf(logits, chunk);
      return [tf.matMul(dLogits, rows, true), tf.matMul(dLogits, tile.weight)];
    });
    dhs.push(dhPart);
    dTile = addTo(dTile, dTilePart);
  }
  return [dTile!, join(dhs)];
}

/** What a chunk's carry becomes with its logits [n, R]; runs in a tidy. */
type StatesOf = (logits: Tensor, chunk: TokenChunk) => Tensor[];

/** The gradient [n, R] of a chunk's logits, which it consumes. */
type GradientOf = (logits: Tensor, chunk: TokenChunk) => Tensor;

function fusedStates(tile: Tile, carry: readonly Tensor[], labels: Tensor): StatesOf {
  const [largest, total, target] = carry;
  return (logits, { first }) => {
    const attrs: LossTileAttrs = { firstToken: first, firstRow: tile.firstRow };
    return runKernel(FUSED.lossTile, { logits, largest, total, target, labels }, attrs);
  };
}

function plainStates(tile: Tile, carry: readonly Tensor[], targets: Tensor): StatesOf {
  return (logits, chunk) => {
    const [largest, total, targetLogit] = carry.map((state) => rowsOf(state, chunk));
    const found = tf.tidy(() =>
      tf.sum(tf.mul(logits, targetsInTile(rowsOf(targets, chunk), tile)), 1),
    );
    const newLargest = tf.maximum(largest!, tf.max(logits, 1));
    const shifted = consume(logits, (value) => tf.sub(value, tf.expandDims(newLargest, 1)));
    const added = consume(consume(shifted, tf.exp), (weights) => tf.sum(weights, 1));
    const kept = tf.mul(total!, tf.exp(tf.sub(largest!, newLargest)));
    return [newLargest, tf.add(kept, added), tf.add(targetLogit!, found)];
  };
}

function fusedGradient(tile: Tile, lse: Tensor, labels: Tensor, scale: number): GradientOf {
  return (logits, { first }) => {
    const attrs: LossTileGradAttrs = { firstToken: first, firstRow: tile.firstRow, scale };
    return consume(logits, () => runKernel(FUSED.lossTileGrad, { logits, lse, labels }, attrs)[0]!);
  };
}

function plainGradient(tile: Tile, lse: Tensor, targets: Tensor1D, scale: number): GradientOf {
  const factors = tf.mul(maskOf(targets), scale);
  return (logits, chunk) => {
    const rowLse = tf.expandDims(rowsOf(lse, chunk), 1);
    const logs = consume(logits, (value) => tf.sub(value, rowLse));
    const found = targetsInTile(rowsOf(targets, chunk), tile);
    const error = consume(consume(logs, tf.exp), (value) => tf.sub(value, found));
    found.dispose();
    const factor = tf.expandDims(rowsOf(factors, chunk), 1);
    return consume(error, (value) => tf.mul(value, factor));
  };
}

/** [n, R] with 1 at a token's target when it lies in the tile. */
function targetsInTile(targets: Tensor, tile: Tile): Tensor {
  const relative = tf.sub<Tensor1D>(targets, tf.scalar(tile.firstRow, 'int32'));
  // tfjs refuses a depth of 1, which the last tile has when one row is left over.
  const depth = Math.max(2, tile.rowCount);
  const found = tf.oneHot(relative, depth, 1, 0, 'float32');
  if (depth === tile.rowCount) return found;
  return consume(found, (value) => tf.slice(value, [0, 0], [value.shape[0], tile.rowCount]));
}

function tokenChunks(count: number): TokenChunk[] {
  return Array.from({ length: Math.ceil(count / TOKEN_CHUNK) }, (_, index) => {
    const first = index * TOKEN_CHUNK;
    return { first, size: Math.min(TOKEN_CHUNK, count - first) };
  });
}

/** The chunk's rows of x; x itself when these are all. */
function rowsOf(x: Tensor, { first, size }: TokenChunk): Tensor {
  if (size === x.shape[0]) return x;
  return tf.slice(x, [first, ...x.shape.slice(1).map(() => 0)], [size, ...x.shape.slice(1)]);
}

function join(parts: readonly Tensor[]): Tensor {
  return parts.length === 1 ? parts[0]! : tf.concat([...parts], 0);
}

/** `total` + `part`; disposes both. */
function addTo(total: Tensor | undefined, part: Tensor): Tensor {
  if (total === undefined) return part;
  const sum = tf.add(total, part);
  total.dispose();
  part.dispose();
  return sum;
}
