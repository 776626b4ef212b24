/**
 * @file `eval_split`: which rows are set aside for evaluation.
 */
import { SpillwayError } from '../../core/errors.js';
import { Random, shuffle } from './random.js';

/** Keeps this draw apart from the sampler's, whose keys are (seed, epoch). */
const SPLIT_KEY = 0x73706c74;

/** Row numbers of both parts, ascending; together every row once. */
export interface RowSplit {
  readonly train: Uint32Array;
  readonly eval: Uint32Array;
}

/**
 * Draws rows without replacement; (rowCount, evalSplit, seed) alone decide which.
 *
 * @param evalSplit a share below 1, rounded up to rows as `datasets.train_test_split` does, or a
 *   number of rows
 * @param seed unsigned 32-bit
 * @throws CONFIG_INVALID when no row is left to train on
 */
export function splitRows(rowCount: number, evalSplit: number, seed: number): RowSplit {
  const evalCount = evalSplit < 1 ? Math.ceil(rowCount * evalSplit) : evalSplit;
  if (!(evalCount >= 1 && evalCount < rowCount)) {
    throw new SpillwayError(
      'CONFIG_INVALID',
      `eval_split takes ${evalCount} of ${rowCount} rows; leave at least one for training and one for evaluation`,
      { eval_split: evalSplit, evalRows: evalCount, rows: rowCount },
    );
  }
  const order = Uint32Array.from({ length: rowCount }, (_, row) => row);
  shuffle(order, Random.keyed(seed, SPLIT_KEY));
  return { train: order.slice(evalCount).sort(), eval: order.slice(0, evalCount).sort() };
}
