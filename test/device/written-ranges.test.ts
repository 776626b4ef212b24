// Goal: the ranges of an upload equal a plain set of elements.
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { WrittenRanges } from '../../tiers/device/written-ranges.js';

test('accepts and covers exactly what a set of elements does', () => {
  const range = fc.record({ start: fc.nat(20), length: fc.nat(6) });
  fc.assert(
    fc.property(fc.array(range, { maxLength: 30 }), fc.nat(26), (ranges, total) => {
      const written = new WrittenRanges();
      const oracle = new Set<number>();
      for (const { start, length } of ranges) {
        const elements = Array.from({ length }, (_, i) => start + i);
        const free = elements.every((element) => !oracle.has(element));
        expect(written.add(start, start + length)).toBe(free);
        if (free) for (const element of elements) oracle.add(element);
      }
      const full = Array.from({ length: total }, (_, i) => i).every((i) => oracle.has(i));
      expect(written.covers(total)).toBe(full && oracle.size === total);
    }),
    { numRuns: 500 },
  );
});
