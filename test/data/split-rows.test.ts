// Goal: a split is a partition that seed and size alone decide; one that leaves nothing is refused.
import fc from 'fast-check';
import { expect, it } from 'vitest';
import { splitRows } from '../../src/data/split-rows.js';
import { failureOf } from './temporary-files.js';

it('puts each row into one part, in file order', () => {
  fc.assert(
    fc.property(
      fc.integer({ min: 2, max: 200 }),
      fc.oneof(fc.constantFrom(0.001, 0.1, 0.25, 0.5), fc.integer({ min: 1, max: 200 })),
      fc.integer({ min: 0, max: 2 ** 32 - 1 }),
      (rowCount, evalSplit, seed) => {
        const expected = evalSplit < 1 ? Math.ceil(rowCount * evalSplit) : evalSplit;
        fc.pre(expected < rowCount);
        const split = splitRows(rowCount, evalSplit, seed);
        expect(split.eval.length).toBe(expected);
        for (const part of [split.train, split.eval]) expect(part).toEqual(part.toSorted());
        const all = [...split.train, ...split.eval].toSorted((a, b) => a - b);
        expect(all).toEqual([...Array(rowCount).keys()]);
        expect(splitRows(rowCount, evalSplit, seed)).toEqual(split);
      },
    ),
  );
});

it('draws other rows for another seed, and each row about equally often', () => {
  const drawn = new Uint32Array(10);
  for (let seed = 0; seed < 1000; seed += 1) {
    for (const row of splitRows(10, 0.3, seed).eval) drawn[row]! += 1;
  }
  // 300 expected each, standard deviation 14.5: five of them.
  for (const times of drawn) expect(Math.abs(times - 300)).toBeLessThan(73);
});

it('has one draw on every machine', () => {
  // Recorded; a change would evaluate resumed runs on rows that they trained on.
  expect([...splitRows(20, 5, 42).eval]).toEqual([3, 6, 9, 13, 19]);
});

it.each([
  [1, 0.5],
  [5, 5],
  [5, 9],
  [3, 0.9],
])('refuses to split %i rows by %d, with the numbers', async (rows, evalSplit) => {
  const error = await failureOf(() => Promise.resolve().then(() => splitRows(rows, evalSplit, 1)));
  expect(error.code).toBe('CONFIG_INVALID');
  const evalRows = evalSplit < 1 ? Math.ceil(rows * evalSplit) : evalSplit;
  expect(error.message).toContain(`${evalRows} of ${rows} rows`);
});
