/**
 * @file Row numbers for evaluation: every row once, in order.
 */

/** Batches of `batchSize` rows, the last one perhaps of fewer; ceil(rowCount / batchSize) of them. */
export function* sequentialBatches(
  rowCount: number,
  batchSize: number,
): Generator<Uint32Array, void, undefined> {
  for (let start = 0; start < rowCount; start += batchSize) {
    const count = Math.min(batchSize, rowCount - start);
    yield Uint32Array.from({ length: count }, (_, index) => start + index);
  }
}
