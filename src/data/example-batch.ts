/**
 * @file The largest micro-batch that data sets can give: what memory is planned for.
 */
import { assert } from '../../core/errors.js';
import type { MicroBatch } from '../model/block.js';
import { languageModelBatch } from '../model/language-model-batch.js';
import { paddedLength } from './collate.js';
import type { TokenDataset } from './token-dataset.js';

/** Shape of a micro-batch. */
export interface BatchShape {
  /** B */
  readonly batchSize: number;
  /** T */
  readonly length: number;
  /** Whether its rows hold several documents. */
  readonly packed: boolean;
  /** Tokens of the longest document of packed rows, which models may limit. Default: a whole row. */
  readonly longestDocument?: number;
}

/** A micro-batch of zeros with the fields of `collate`, [B, T] each. */
export function emptyBatch(shape: BatchShape): MicroBatch {
  const { batchSize, length, packed, longestDocument = length } = shape;
  const zeros = new Int32Array(batchSize * length);
  const places = zeros.map((_, at) => at % length);
  return languageModelBatch({
    inputIds: zeros,
    labels: zeros,
    batchSize,
    length,
    ...(packed && {
      documents: places.map((place) => Math.floor(place / longestDocument)),
      positionIds: places.map((place) => place % longestDocument),
    }),
  });
}

/**
 * A micro-batch with the fields of `collate` and shapes no smaller than any of its: B rows of the
 * longest row's padded length.
 *
 * @param datasets at least one; all packed or none
 * @param batchSize B, the largest that will be used
 * @param limits those that `collate` will be given
 */
export function exampleBatchOf(
  datasets: readonly TokenDataset[],
  batchSize: number,
  limits: readonly number[],
): MicroBatch {
  const packed = datasets.some((dataset) => dataset.packed);
  const uniform = datasets.every((dataset) => dataset.packed === packed);
  assert(datasets.length > 0 && uniform, 'data sets of one form');
  const longestRow = datasets.reduce((most, dataset) => Math.max(most, dataset.longestRow), 0);
  const longestDocument = Math.max(...datasets.map((dataset) => dataset.longestDocument));
  const length = paddedLength(longestRow, limits);
  return emptyBatch({ batchSize, length, packed, longestDocument });
}
