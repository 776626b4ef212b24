// Goal: packing is best-fit-decreasing: every row whole, once, within its bound of the optimum.
import fc from 'fast-check';
import { expect, it } from 'vitest';
import { isCoded } from '../../core/errors.js';
import { packRows } from '../../src/data/pack-rows.js';
import type { PackPlan } from '../../src/data/pack-rows.js';

/** Row lengths with the length of a sequence. */
function cases(maxRows: number) {
  return fc
    .integer({ min: 1, max: 40 })
    .chain((maxLength) =>
      fc.tuple(
        fc.array(fc.integer({ min: 1, max: maxLength }), { minLength: 1, maxLength: maxRows }),
        fc.constant(maxLength),
      ),
    );
}

function sequencesOf({ starts, members }: PackPlan): number[][] {
  return Array.from({ length: starts.length - 1 }, (_, sequence) => [
    ...members.subarray(starts[sequence], starts[sequence + 1]),
  ]);
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}

it('puts every row into exactly one sequence, and no sequence exceeds its length', () => {
  fc.assert(
    fc.property(cases(60), ([lengths, maxLength]) => {
      const sequences = sequencesOf(packRows(lengths, maxLength));
      const rows = sequences.flat().toSorted((a, b) => a - b);
      expect(rows).toEqual([...lengths.keys()]);
      for (const sequence of sequences) {
        expect(sequence.length).toBeGreaterThan(0);
        expect(sum(sequence.map((row) => lengths[row]!))).toBeLessThanOrEqual(maxLength);
      }
    }),
  );
});

/** The definition, by looking at every open sequence. */
function naiveLoads(lengths: readonly number[], maxLength: number): number[] {
  const loads: number[] = [];
  for (const length of lengths.toSorted((a, b) => b - a)) {
    const fitting = loads.filter((load) => load + length <= maxLength);
    if (fitting.length === 0) loads.push(length);
    else loads[loads.indexOf(Math.max(...fitting))]! += length;
  }
  return loads.toSorted((a, b) => a - b);
}

it('fills sequences as a search over all open ones does', () => {
  fc.assert(
    fc.property(cases(80), ([lengths, maxLength]) => {
      const loads = sequencesOf(packRows(lengths, maxLength)).map((sequence) =>
        sum(sequence.map((row) => lengths[row]!)),
      );
      expect(loads.toSorted((a, b) => a - b)).toEqual(naiveLoads(lengths, maxLength));
    }),
  );
});

/** Fewest sequences, by dynamic programming over subsets: (sequences, room used in the last). */
function optimum(lengths: readonly number[], maxLength: number): number {
  const best: [number, number][] = [[1, 0]];
  for (let subset = 1; subset < 2 ** lengths.length; subset += 1) {
    let least: [number, number] = [Infinity, 0];
    for (const [row, length] of lengths.entries()) {
      if ((subset & (1 << row)) === 0) continue;
      const [count, used] = best[subset & ~(1 << row)]!;
      const next: [number, number] =
        used + length <= maxLength ? [count, used + length] : [count + 1, length];
      if (next[0] < least[0] || (next[0] === least[0] && next[1] < least[1])) least = next;
    }
    best.push(least);
  }
  return best.at(-1)![0];
}

it('takes at most 11/9 of the fewest sequences, plus 6/9', () => {
  fc.assert(
    fc.property(cases(9), ([lengths, maxLength]) => {
      const { starts } = packRows(lengths, maxLength);
      const fewest = optimum(lengths, maxLength);
      expect(starts.length - 1).toBeGreaterThanOrEqual(fewest);
      expect(starts.length - 1).toBeLessThanOrEqual((11 * fewest + 6) / 9);
    }),
    { numRuns: 60 },
  );
});

it('packs a known case, by descending length, ties by row number', () => {
  // Rows 1 (6) and 3 (6) open sequences; 0 (4) fills the later one, 4 (4) the other; 2 (3) opens.
  const plan = packRows([4, 6, 3, 6, 4], 10);
  expect(sequencesOf(plan)).toEqual([[1, 4], [3, 0], [2]]);
});

it('packs a million rows, and well', () => {
  const lengths = Uint32Array.from({ length: 1_000_000 }, (_, row) => 1 + ((row * 7919) % 2048));
  const { starts, members } = packRows(lengths, 4096);
  const total = lengths.reduce((all, length) => all + length, 0);
  expect(members.length).toBe(lengths.length);
  // Rows of at most half a sequence leave hardly any room.
  expect(starts.length - 1).toBeLessThan((total / 4096) * 1.01 + 1);
});

it('refuses a row that is longer than a sequence', () => {
  for (const length of [0, 11]) {
    try {
      packRows([length], 10);
      expect.unreachable();
    } catch (error) {
      expect(isCoded(error) && error.code).toBe('INTERNAL');
    }
  }
});
