/**
 * @file The last block: final norm, projection on the vocabulary, cross-entropy; in tiles.
 *
 * The matrix [V, C] is visited in tiles of rows, tokens in chunks, so neither the matrix nor the
 * logits [N, V] are ever whole. Forward keeps a running maximum m, s = Σ exp(logit - m) and the
 * target's logit per token (online softmax, Milakov and Gimelshein 2018, arXiv 1805.02867); backward
 * computes the logits of a tile again:
 *
 *     loss = m + log s - logit[target]
 *     dLogits = (exp(logit - m - log s) - onehot(target))·mask·lossScale
 *     dTile = dLogitsᵀ·h,  dh = Σ over tiles dLogits·tile
 *
 * Shapes: N = B*T, C hidden, R rows of a tile, n tokens of a chunk. Targets are the labels shifted
 * by one; the last position of a sequence, and labels -100, are masked.
 */
import * as tf from '@tensorflow/tfjs-core';
import type { Tensor, Tensor1D } from '@tensorflow/tfjs-core';
import { SpillwayError } from '../../core/errors.js';
import type { BlockAux, ParamName, ParamSpec, Params, Tile, TiledBlock } from './block.js';
import { fieldOf } from './block-params.js';
import { IGNORED_LABEL } from './language-model-batch.js';
import { consume } from './ops/consume.js';

/** Elements of a tile, about: 4 MiB of float32, small beside any budget, large for a product. */
const TILE_ELEMENTS = 2 ** 20;

/** Tile rows are a multiple of this and at least this, unless the vocabulary is smaller. */
const TILE_ROW_UNIT = 64;

/** Tokens per product with a tile, which bounds the logits at hand to [1024, R]. */
const TOKEN_CHUNK = 1024;

/** Running maximum before the first tile: exp(-1e30 - m) is 0 for every finite m. */
const NO_MAXIMUM = -1e30;

/** What a vocabulary head is made of. */
export interface VocabularyHeadOptions {
  readonly name: string;
  /** Names the norm, for the kind key. */
  readonly kind: string;
  /** The matrix [V, C]: the embedding's (tied) or one of `owns`. */
  readonly matrix: ParamName;
  readonly vocabSize: number;
  readonly hiddenSize: number;
  readonly owns: readonly ParamSpec[];
  readonly normUses: readonly ParamName[];
  /** The final norm of rows x [N, C]. */
  norm(params: Params, x: Tensor): Tensor;
}

/** Rows per tile of a [vocabSize, hiddenSize] matrix. */
export function headTileRows(vocabSize: number, hiddenSize: number): number {
  const fitting = Math.floor(TILE_ELEMENTS / hiddenSize / TILE_ROW_UNIT) * TILE_ROW_UNIT;
  return Math.min(vocabSize, Math.max(TILE_ROW_UNIT, fitting));
}

/** The head block. `begin` throws TOKEN_OUT_OF_RANGE for a label outside the vocabulary. */
export function vocabularyHead(options: VocabularyHeadOptions): TiledBlock {
  const { vocabSize, hiddenSize } = options;
  return {
    kind: 'tiled',
    name: options.name,
    kindKey: `vocabulary-head(${options.kind},V=${vocabSize},C=${hiddenSize})`,
    owns: options.owns,
    uses: [...new Set([...options.normUses, options.matrix])],
    reads: ['labels'],
    tiledParam: options.matrix,
    tileRows: headTileRows(vocabSize, hiddenSize),
    prepare: (params, [x]) => {
      const rows = x!.size / hiddenSize;
      return [options.norm(params, tf.reshape(x!, [rows, hiddenSize]))];
    },
    begin: ([h], aux) => {
      checkLabels(aux, vocabSize);
      const count = h!.shape[0];
      return [tf.fill([count], NO_MAXIMUM), tf.zeros([count]), tf.zeros([count])];
    },
    forwardTile: (tile, [h], carry, aux) => forwardTile(tile, h!, carry, shiftedTargets(aux)),
    end: (_prepared, [largest, total, targetLogit], aux) => {
      const lse = tf.add(largest!, tf.log(total!));
      const mask = maskOf(shiftedTargets(aux));
      return { losses: tf.mul(tf.sub(lse, targetLogit!), mask), saved: [lse] };
    },
    backwardTile: (tile, [h], [lse], aux) => {
      const [dTile, dh] = backwardTile(tile, h!, lse!, shiftedTargets(aux), aux.lossScale);
      return { dTile, dPrepared: [dh] };
    },
  };
}

/** Target id of each position, [N] int32: the next position's label; -100 at a sequence's end. */
function shiftedTargets(aux: BlockAux): Tensor1D {
  const labels = aux.tensors['labels']!;
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
function maskOf(targets: Tensor1D): Tensor {
  return tf.cast(tf.greaterEqual(targets, tf.scalar(0, 'int32')), 'float32');
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

/** Ranges of at most TOKEN_CHUNK tokens. */
function tokenChunks(count: number): { first: number; size: number }[] {
  return Array.from({ length: Math.ceil(count / TOKEN_CHUNK) }, (_, index) => {
    const first = index * TOKEN_CHUNK;
    return { first, size: Math.min(TOKEN_CHUNK, count - first) };
  });
}

/** Rows `first … first + size` of x; x itself when these are all. */
function rowsOf(x: Tensor, first: number, size: number): Tensor {
  if (size === x.shape[0]) return x;
  return tf.slice(x, [first, ...x.shape.slice(1).map(() => 0)], [size, ...x.shape.slice(1)]);
}

function join(parts: readonly Tensor[]): Tensor {
  return parts.length === 1 ? parts[0]! : tf.concat([...parts], 0);
}

/** The carry after `tile`: running maximum, sum of exponentials, target logit, [N] each. */
function forwardTile(tile: Tile, h: Tensor, carry: readonly Tensor[], targets: Tensor1D): Tensor[] {
  const parts = tokenChunks(h.shape[0]).map(({ first, size }) =>
    tf.tidy(() => {
      const [largest, total, targetLogit] = carry.map((state) => rowsOf(state, first, size));
      const logits = tf.matMul(rowsOf(h, first, size), tile.weight, false, true);
      const found = tf.tidy(() =>
        tf.sum(tf.mul(logits, targetsInTile(rowsOf(targets, first, size), tile)), 1),
      );
      const newLargest = tf.maximum(largest!, tf.max(logits, 1));
      const shifted = consume(logits, (value) => tf.sub(value, tf.expandDims(newLargest, 1)));
      const added = consume(consume(shifted, tf.exp), (weights) => tf.sum(weights, 1));
      const kept = tf.mul(total!, tf.exp(tf.sub(largest!, newLargest)));
      return [newLargest, tf.add(kept, added), tf.add(targetLogit!, found)];
    }),
  );
  return [0, 1, 2].map((index) => join(parts.map((part) => part[index]!)));
}

/** [dTile [R, C], dh [N, C]]. */
function backwardTile(
  tile: Tile,
  h: Tensor,
  lse: Tensor,
  targets: Tensor1D,
  lossScale: number,
): [Tensor, Tensor] {
  const factors = tf.mul(maskOf(targets), lossScale);
  const dhs: Tensor[] = [];
  let dTile: Tensor | undefined;
  for (const { first, size } of tokenChunks(h.shape[0])) {
    const [dTilePart, dhPart] = tf.tidy((): [Tensor, Tensor] => {
      const rows = rowsOf(h, first, size);
      const logits = tf.matMul(rows, tile.weight, false, true);
      const rowLse = tf.expandDims(rowsOf(lse, first, size), 1);
      const logs = consume(logits, (value) => tf.sub(value, rowLse));
      const found = targetsInTile(rowsOf(targets, first, size), tile);
      const error = consume(consume(logs, tf.exp), (value) => tf.sub(value, found));
      found.dispose();
      const factor = tf.expandDims(rowsOf(factors, first, size), 1);
      const dLogits = consume(error, (value) => tf.mul(value, factor));
      return [tf.matMul(dLogits, rows, true), tf.matMul(dLogits, tile.weight)];
    });
    dhs.push(dhPart);
    dTile = addTo(dTile, dTilePart);
  }
  return [dTile!, join(dhs)];
}

/** `total` + `part`; disposes both. */
function addTo(total: Tensor | undefined, part: Tensor): Tensor {
  if (total === undefined) return part;
  const sum = tf.add(total, part);
  total.dispose();
  part.dispose();
  return sum;
}

function checkLabels(aux: BlockAux, vocabSize: number): void {
  const labels = fieldOf(aux.fields, 'labels').data;
  for (const [index, label] of labels.entries()) {
    if (label === IGNORED_LABEL || (label >= 0 && label < vocabSize)) continue;
    throw new SpillwayError(
      'TOKEN_OUT_OF_RANGE',
      'a label is neither in the vocabulary nor -100; check the tokenizer against the model',
      { label, vocabSize, index },
    );
  }
}
