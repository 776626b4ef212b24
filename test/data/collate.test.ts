// Goal: micro-batches hold the rows, padded on the right to one length, and weigh their labels.
import fc from 'fast-check';
import { expect, it } from 'vitest';
import { collate, paddedLength } from '../../src/data/collate.js';
import type { TokenDataset } from '../../src/data/token-dataset.js';

/** A data set of rows as given; row i has labels ids + 1000, every third one masked. */
function datasetOf(rows: readonly number[][]): TokenDataset {
  return {
    length: rows.length,
    packed: false,
    documentCount: rows.length,
    row: (index) => ({
      inputIds: Int32Array.from(rows[index]!),
      labels: Int32Array.from(rows[index]!, (id, t) => (t % 3 === 2 ? -100 : id + 1000)),
      documents: undefined,
      positionIds: undefined,
    }),
    rowLength: (index) => rows[index]!.length,
    longestRow: Math.max(...rows.map((row) => row.length)),
    longestDocument: Math.max(...rows.map((row) => row.length)),
    tokenCount: rows.flat().length,
    truncatedCount: 0,
    skippedCount: 0,
    byteLength: 0,
  };
}

it('pads to the longest row of the accumulated batch and restores every row', () => {
  const rows = fc.array(
    fc.array(fc.integer({ min: 1, max: 99 }), { minLength: 2, maxLength: 21 }),
    {
      minLength: 4,
      maxLength: 4,
    },
  );
  fc.assert(
    fc.property(rows, (given) => {
      const dataset = datasetOf(given);
      const chosen = [Uint32Array.of(2, 0), Uint32Array.of(3)];
      const longest = Math.max(...[0, 2, 3].map((index) => given[index]!.length));
      const length = Math.min(Math.ceil(longest / 8) * 8, 21);
      const batches = collate(dataset, chosen, [21]);
      expect(batches).toHaveLength(2);
      batches.forEach((batch, index) => {
        const { input_ids: ids, labels } = batch.fields;
        expect(ids!.shape).toEqual([chosen[index]!.length, length]);
        expect(labels!.shape).toEqual(ids!.shape);
        let weight = 0;
        chosen[index]!.forEach((row, b) => {
          for (let t = 0; t < length; t += 1) {
            const id = given[row]![t];
            const label = id === undefined || t % 3 === 2 ? -100 : id + 1000;
            expect(ids!.data[b * length + t]).toBe(id ?? 0);
            expect(labels!.data[b * length + t]).toBe(label);
            if (t > 0 && label !== -100) weight += 1;
          }
        });
        expect(batch.weight).toBe(weight);
      });
    }),
    { numRuns: 50 },
  );
});

it('rounds the length up to 8 but never above max_length', () => {
  expect([1, 8, 9, 60, 61].map((longest) => paddedLength(longest, [61]))).toEqual([
    8, 8, 16, 61, 61,
  ]);
});

it('rounds no length across a limit that the longest row keeps', () => {
  const limits = [2048, 17, 20];
  const lengths = [16, 17, 18, 20, 21, 2045].map((longest) => paddedLength(longest, limits));
  expect(lengths).toEqual([16, 17, 20, 20, 24, 2048]);
  // Phi-3 mini's window, and a max_length above it.
  expect([2040, 2045, 2047].map((longest) => paddedLength(longest, [4096, 2047]))).toEqual([
    2040, 2047, 2047,
  ]);
});
