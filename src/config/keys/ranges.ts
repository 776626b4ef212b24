/**
 * @file Ranges that several keys share, as predicates.
 */

/** Whether a value is at least `least`. */
export function atLeast(least: number): (value: number) => boolean {
  return (value) => value >= least;
}

/** Whether a value is a number from 0 up. */
export function finite(value: number): boolean {
  return Number.isFinite(value) && value >= 0;
}

/** Whether a value is a share from 0 to 1. */
export function share(value: number): boolean {
  return value >= 0 && value <= 1;
}

/** Whether a value is a whole number from 1 up, or a share below 1 and above 0. */
export function countOrShare(value: number): boolean {
  return value > 0 && (value < 1 || Number.isSafeInteger(value));
}
