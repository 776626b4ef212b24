/**
 * @file How gathered rows lie in an activation slot.
 */

/** Bytes that `rows` rows of `columns` float32 take there: whole cache lines. */
export function rowBytes(rows: number, columns: number): number {
  return Math.ceil((rows * columns * 4) / 64) * 64;
}
