/**
 * @file A micro-batch of token sequences for the built-in models, in Hugging Face's convention:
 * labels are not shifted, position t predicts labels[t + 1], and -100 masks a label.
 *
 * Padding stands on the right with labels -100, so causal attention needs no mask: no position with
 * a label sees a padded one.
 */
import { SpillwayError } from '../../core/errors.js';
import type { MicroBatch } from './block.js';

/** The label that masks a position. */
export const IGNORED_LABEL = -100;

/** Sequences of one length, row-major [B, T]. */
export interface TokenBatch {
  readonly inputIds: ArrayLike<number>;
  /** Unshifted labels; -100 is ignored. Often equal to `inputIds`. */
  readonly labels: ArrayLike<number>;
  /** B */
  readonly batchSize: number;
  /** T */
  readonly length: number;
  /** Packed rows: which document of its row a token belongs to, [B, T]. Tokens of one document are
   * neighbours, documents do not see one another, and the first token of each has no loss term. */
  readonly documents?: ArrayLike<number>;
  /** Packed rows: a token's place in its document, [B, T]. Default: its place in the row. */
  readonly positionIds?: ArrayLike<number>;
}

/**
 * The micro-batch of `batch`, with fields `input_ids` and `labels`, and where given `documents` and
 * `position_ids`, [B, T] each (int32, copied), and the number of its loss terms as weight.
 *
 * @throws DATA_INVALID when the arrays do not hold B·T integers. Ids are compared with the
 *   vocabulary when the batch is used (TOKEN_OUT_OF_RANGE).
 */
export function languageModelBatch(batch: TokenBatch): MicroBatch {
  const { batchSize, length } = batch;
  const inputIds = int32Copy(batch.inputIds, 'inputIds', batch);
  const labels = int32Copy(batch.labels, 'labels', batch);
  const optional = (values: ArrayLike<number> | undefined, name: string) =>
    values === undefined ? undefined : int32Copy(values, name, batch);
  const documents = optional(batch.documents, 'documents');
  const positionIds = optional(batch.positionIds, 'positionIds');
  let weight = 0;
  for (let row = 0; row < batchSize; row += 1) {
    for (let t = 1; t < length; t += 1) {
      const at = row * length + t;
      if (documents !== undefined && documents[at] !== documents[at - 1]) {
        labels[at] = IGNORED_LABEL;
      }
      if (labels[at] !== IGNORED_LABEL) weight += 1;
    }
  }
  const shape = [batchSize, length];
  return {
    fields: {
      input_ids: { data: inputIds, shape },
      labels: { data: labels, shape },
      ...(documents === undefined ? {} : { documents: { data: documents, shape } }),
      ...(positionIds === undefined ? {} : { position_ids: { data: positionIds, shape } }),
    },
    weight,
  };
}

function int32Copy(values: ArrayLike<number>, name: string, batch: TokenBatch): Int32Array {
  const expected = batch.batchSize * batch.length;
  const copy = Int32Array.from(values);
  const wrong = copy.findIndex((value, index) => value !== values[index]);
  if (copy.length !== expected || expected === 0 || wrong >= 0) {
    throw new SpillwayError(
      'DATA_INVALID',
      `${name} must hold batchSize * length integers; pad the sequences to one length`,
      {
        batchSize: batch.batchSize,
        length: batch.length,
        count: copy.length,
        ...(wrong >= 0 && { firstWrongIndex: wrong }),
      },
    );
  }
  return copy;
}
