// Goal: nesting is counted outside of strings only, on any text.
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import { isNestedDeeper } from '../../core/json-depth.js';

function depthOf(value: unknown): number {
  if (typeof value !== 'object' || value === null) return 0;
  return 1 + Math.max(0, ...Object.values(value).map(depthOf));
}

describe('isNestedDeeper', () => {
  it('agrees with the parsed value', () => {
    fc.assert(
      fc.property(fc.json({ maxDepth: 6 }), (text) => {
        const depth = depthOf(JSON.parse(text));
        expect(isNestedDeeper(text, depth)).toBe(false);
        if (depth > 0) expect(isNestedDeeper(text, depth - 1)).toBe(true);
      }),
    );
  });

  it.each([
    ['"[[[["', 0, false],
    ['["\\"[[", [1]]', 2, false],
    ['["\\\\", [1]]', 1, true],
    ['["[[', 1, false],
    ['["\\', 1, false],
    [']]]] [[', 0, false],
    ['', 0, false],
    ['['.repeat(100_000), 100, true],
  ])('of %j beyond %i is %s', (text, limit, deeper) => {
    expect(isNestedDeeper(text, limit)).toBe(deeper);
  });
});
