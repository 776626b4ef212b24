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
}

/** A micro-batch of zeros with the fields of `collate`, [B, T] each. */
export function emptyBatch({ batchSize, length, packed }: BatchShape): MicroBatch {
  const zeros = new Int32Array(batchSize * length);
  return languageModelBatch({
    inputIds: zeros,
    labels: zeros,
    batchSize,
    length,
    ...(packed && { documents: zeros, positionIds: zeros.map((_, at) => at % length) }),
  });
}

/**
 * A micro-batch with the fields of `collate` and shapes no smaller than any of its: B rows of the
 * longest row's padded length.
 *
 * @param datasets at least one; all packed or none
 * @param batchSize B, the largest that will be used
 */
export function exampleBatchOf(
  datasets: readonly TokenDataset[],
  batchSize: number,
  maxLength: number,
): MicroBatch {
  const packed = datasets.some((dataset) => dataset.packed);
  const uniform = datasets.every((dataset) => dataset.packed === packed);
  assert(datasets.length > 0 && uniform, 'data sets of one form');
  const longestRow = datasets.reduce((most, dataset) => Math.max(most, dataset.longestRow), 0);
  return emptyBatch({ batchSize, length: paddedLength(longestRow, maxLength), packed });
}
