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
import type { Tensor } from '@tensorflow/tfjs-core';
import { SpillwayError } from '../../core/errors.js';
import type { BlockAux, ParamName, ParamSpec, Params, TiledBlock } from './block.js';
import { fieldOf } from './block-params.js';
import { IGNORED_LABEL } from './language-model-batch.js';
import { backwardTile, forwardTile, maskOf, NO_MAXIMUM, shiftedTargets } from './ops/loss-tile.js';

/** Elements of a tile, about: 4 MiB of float32, small beside any budget, large for a product. */
const TILE_ELEMENTS = 2 ** 20;

/** Tile rows are a multiple of this and at least this, unless the vocabulary is smaller. */
const TILE_ROW_UNIT = 64;

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
    forwardTile: (tile, [h], carry, aux) => forwardTile(tile, h!, carry, labelsOf(aux)),
    end: (_prepared, [largest, total, targetLogit], aux) => {
      const lse = tf.add(largest!, tf.log(total!));
      const mask = maskOf(shiftedTargets(labelsOf(aux)));
      return { losses: tf.mul(tf.sub(lse, targetLogit!), mask), saved: [lse] };
    },
    backwardTile: (tile, [h], [lse], aux) => {
      const [dTile, dh] = backwardTile(tile, h!, lse!, labelsOf(aux), aux.lossScale);
      return { dTile, dPrepared: [dh] };
    },
    logits: (tile, [h]) => tf.matMul(h!, tile.weight, false, true),
  };
}

/** [B, T] int32. */
function labelsOf(aux: BlockAux): Tensor {
  return aux.tensors['labels']!;
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
