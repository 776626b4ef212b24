// Goal: packed rows hold whole documents, numbered, positions from 0, first labels masked; pads are apart.
import fc from 'fast-check';
import { expect, it } from 'vitest';
import { ArenaDataset } from '../../src/data/arena-dataset.js';
import { collate } from '../../src/data/collate.js';
import { exampleBatchOf } from '../../src/data/example-batch.js';
import { PackedDataset } from '../../src/data/packed-dataset.js';
import { sequentialBatches } from '../../src/data/sequential-batches.js';
import { TokenArena } from '../../src/data/token-arena.js';
import { checkBatch } from '../../src/engine/check-batch.js';

const MAX_LENGTH = 19;

/** Documents; document d has ids 100·d + t, every third label masked, or labels equal to ids. */
const documents = fc.array(
  fc.record({ length: fc.integer({ min: 2, max: MAX_LENGTH }), labelled: fc.boolean() }),
  { minLength: 1, maxLength: 20 },
);

type Documents = readonly { readonly length: number; readonly labelled: boolean }[];

function idAt(document: number, t: number): number {
  return 100 * document + t;
}

function labelAt(given: Documents, document: number, t: number): number {
  return given[document]!.labelled && t % 3 === 2 ? -100 : idAt(document, t);
}

function datasetOf(given: Documents): ArenaDataset {
  const arena = new TokenArena();
  given.forEach(({ length, labelled }, document) => {
    const positions = Array.from({ length }, (_, t) => t);
    const ids = positions.map((t) => idAt(document, t));
    const labels = positions.map((t) => labelAt(given, document, t));
    arena.append(ids, labelled ? labels : undefined);
  });
  return new ArenaDataset(arena, { truncatedCount: 3, skippedCount: 4 });
}

it('holds every document once and whole, and tells its size', () => {
  fc.assert(
    fc.property(documents, (given) => {
      const packed = new PackedDataset(datasetOf(given), MAX_LENGTH);
      const seen: number[] = [];
      let longest = 0;
      for (let index = 0; index < packed.length; index += 1) {
        const row = packed.row(index);
        const { inputIds: ids, labels, documents: numbers, positionIds: positions } = row;
        expect(ids.length).toBe(packed.rowLength(index));
        expect(ids.length).toBeLessThanOrEqual(MAX_LENGTH);
        longest = Math.max(longest, ids.length);
        let at = 0;
        for (let number = 0; at < ids.length; number += 1) {
          const document = Math.floor(ids[at]! / 100);
          seen.push(document);
          for (let t = 0; t < given[document]!.length; t += 1, at += 1) {
            expect(ids[at]).toBe(idAt(document, t));
            expect(labels[at]).toBe(t === 0 ? -100 : labelAt(given, document, t));
            expect(numbers![at]).toBe(number);
            expect(positions![at]).toBe(t);
          }
        }
      }
      expect(seen.toSorted((a, b) => a - b)).toEqual([...given.keys()]);
      expect(packed.documentCount).toBe(given.length);
      expect(packed.tokenCount).toBe(given.reduce((sum, { length }) => sum + length, 0));
      expect(packed.longestRow).toBe(longest);
      expect([packed.truncatedCount, packed.skippedCount]).toEqual([3, 4]);
    }),
    { numRuns: 50 },
  );
});

it('collates with each pad as a document of its own, and weighs what unpacked rows weigh', () => {
  fc.assert(
    fc.property(documents, fc.integer({ min: 1, max: 3 }), (given, batchSize) => {
      const plain = datasetOf(given);
      const packed = new PackedDataset(plain, MAX_LENGTH);
      const example = exampleBatchOf([packed], batchSize, [MAX_LENGTH]);
      let weight = 0;
      for (const rows of sequentialBatches(packed.length, batchSize)) {
        const [batch] = collate(packed, [rows], [MAX_LENGTH]);
        checkBatch(batch!, example);
        weight += batch!.weight;
        const { input_ids: ids, documents: numbers, position_ids: positions } = batch!.fields;
        const [, length] = ids!.shape as [number, number];
        for (const field of [numbers, positions]) expect(field!.shape).toEqual(ids!.shape);
        rows.forEach((row, b) => {
          const tokens = packed.row(row);
          const part = (field: typeof ids) => field!.data.subarray(b * length, (b + 1) * length);
          const count = tokens.inputIds.length;
          expect(part(numbers).subarray(0, count)).toEqual(tokens.documents);
          expect(part(positions).subarray(0, count)).toEqual(tokens.positionIds);
          const pads = length - count;
          const own = tokens.documents!.at(-1)! + 1;
          const padNumbers = Array.from({ length: pads }, (_, pad) => own + pad);
          expect([...part(numbers).subarray(count)]).toEqual(padNumbers);
          expect([...part(positions).subarray(count)]).toEqual(Array(pads).fill(0));
        });
      }
      const rows = Uint32Array.from({ length: plain.length }, (_, row) => row);
      expect(weight).toBe(collate(plain, [rows], [MAX_LENGTH])[0]!.weight);
    }),
    { numRuns: 50 },
  );
});

it('gives an example batch with the largest shapes of all data sets and the same fields', () => {
  const short = datasetOf([{ length: 3, labelled: false }]);
  const long = datasetOf([{ length: 17, labelled: true }]);
  const plain = exampleBatchOf([short, long], 4, [64]);
  expect(Object.keys(plain.fields)).toEqual(['input_ids', 'labels']);
  expect(plain.fields['labels']!.shape).toEqual([4, 24]);
  expect(plain.weight).toBe(4 * 23);
  const both = [short, long].map((dataset) => new PackedDataset(dataset, 20));
  const packed = exampleBatchOf(both, 2, [20]);
  expect(Object.keys(packed.fields)).toEqual(['input_ids', 'labels', 'documents', 'position_ids']);
  expect(packed.fields['position_ids']!.shape).toEqual([2, 20]);
  // Two rows of 20 tokens, in documents of 17, the longest that there is, and 3.
  const row = [...Array(17).keys(), 0, 1, 2];
  expect([...packed.fields['position_ids']!.data]).toEqual([...row, ...row]);
  const numbers = row.map((_, at) => Number(at >= 17));
  expect([...packed.fields['documents']!.data]).toEqual([...numbers, ...numbers]);
  expect(() => exampleBatchOf([short, both[1]!], 2, [20])).toThrow('data sets of one form');
});

it('refuses a row beyond the last, packed or not', () => {
  const plain = datasetOf([{ length: 3, labelled: false }]);
  for (const dataset of [plain, new PackedDataset(plain, 8)]) {
    expect(() => dataset.row(1)).toThrow(RangeError);
    expect(() => dataset.rowLength(-1)).toThrow(RangeError);
  }
});

it('evaluates every row once, in order', () => {
  fc.assert(
    fc.property(fc.nat(40), fc.integer({ min: 1, max: 7 }), (rowCount, batchSize) => {
      const batches = [...sequentialBatches(rowCount, batchSize)];
      expect(batches.flatMap((rows) => [...rows])).toEqual([...Array(rowCount).keys()]);
      expect(batches).toHaveLength(Math.ceil(rowCount / batchSize));
      for (const rows of batches.slice(0, -1)) expect(rows).toHaveLength(batchSize);
    }),
  );
});
