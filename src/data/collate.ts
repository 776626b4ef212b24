/**
 * @file Rows of an accumulated batch as micro-batches for the engine.
 *
 * All micro-batches of a step have one length T, so that one plan fits them: the longest row of the
 * accumulated batch, rounded up to 8 where that crosses no limit which the row keeps. Pads stand on the right, where causal
 * attention cannot see them from a token; their id is 0 and their label -100. In a packed row each
 * is a document of its own, so that pads are never longer than a model's window.
 *
 * B rows, T tokens.
 */
import { alignUp } from '../../core/bytes.js';
import type { MicroBatch } from '../model/block.js';
import { IGNORED_LABEL, languageModelBatch } from '../model/language-model-batch.js';

import type { TokenDataset, TokenRow } from './token-dataset.js';

/** Lengths are multiples of this: few distinct shapes, and rows of whole cache lines. */
const LENGTH_GRAIN = 8;

/** Any id would do, since no loss depends on it. */
const PAD_ID = 0;

/**
 * T of a batch whose longest row has `longestRow` tokens.
 *
 * @param limits lengths that something ends at, such as `max_length` and a model's window, any order
 */
export function paddedLength(longestRow: number, limits: readonly number[]): number {
  const kept = limits.filter((limit) => limit >= longestRow);
  return Math.min(alignUp(longestRow, LENGTH_GRAIN), ...kept);
}

/**
 * Micro-batches with fields input_ids and labels, and documents and position_ids when the data set
 * is packed, [B, T] each.
 *
 * @param limits as `paddedLength` takes
 */
export function collate(
  dataset: TokenDataset,
  microBatches: readonly Uint32Array[],
  limits: readonly number[],
): MicroBatch[] {
  let longestRow = 0;
  for (const rows of microBatches) {
    for (const row of rows) longestRow = Math.max(longestRow, dataset.rowLength(row));
  }
  const length = paddedLength(longestRow, limits);
  return microBatches.map((rows) => {
    const size = rows.length * length;
    const inputIds = new Int32Array(size).fill(PAD_ID);
    const labels = new Int32Array(size).fill(IGNORED_LABEL);
    const packed = dataset.packed
      ? { documents: new Int32Array(size), positionIds: new Int32Array(size) }
      : undefined;
    rows.forEach((row, b) => {
      const tokens = dataset.row(row);
      inputIds.set(tokens.inputIds, b * length);
      labels.set(tokens.labels, b * length);
      if (packed !== undefined) placePacked(packed, tokens, b * length, (b + 1) * length);
    });
    return languageModelBatch({ inputIds, labels, batchSize: rows.length, length, ...packed });
  });
}

/** Fills a row's documents and positions; its pads are documents after the last, at position 0. */
function placePacked(
  into: { readonly documents: Int32Array; readonly positionIds: Int32Array },
  { documents, positionIds }: TokenRow,
  start: number,
  end: number,
): void {
  if (documents === undefined || positionIds === undefined) return;
  into.documents.set(documents, start);
  into.positionIds.set(positionIds, start);
  const padding = start + documents.length;
  const next = (documents.at(-1) ?? -1) + 1;
  for (let at = padding; at < end; at += 1) into.documents[at] = next + at - padding;
}
