/**
 * @file Lengths up to which a layer computes what its model says, and beyond which it refuses.
 */
import { SpillwayError } from '../../core/errors.js';

/** Sequences are at most this long. */
export interface SequenceLimit {
  /** The configuration's field that says so. */
  readonly field: string;
  /** In tokens. */
  readonly length: number;
}

/**
 * Checks that a sequence (of packed rows: the longest document) is within all `limits`.
 *
 * @throws MODEL_UNSUPPORTED naming the field and both lengths
 */
export function checkSequenceLength(limits: readonly SequenceLimit[], length: number): void {
  for (const limit of limits) {
    if (length <= limit.length) continue;
    throw new SpillwayError(
      'MODEL_UNSUPPORTED',
      `config.json: ${limit.field} is ${limit.length}, and longer sequences are not supported (here ${length} tokens); lower max_length`,
      { field: limit.field, limit: limit.length, length },
    );
  }
}
