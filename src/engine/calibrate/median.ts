/** @file The middle of some measurements. */
import { assert } from '../../../core/errors.js';

/** The median; of an even number the lower one of the two in the middle. At least one value. */
export function median(values: readonly number[]): number {
  assert(values.length > 0, 'there is a measurement');
  return values.toSorted((a, b) => a - b)[Math.floor((values.length - 1) / 2)]!;
}
