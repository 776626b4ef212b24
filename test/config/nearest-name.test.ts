// Goal: edit distance agrees with an exhaustive search over edits.
import fc from 'fast-check';
import { expect, it } from 'vitest';
import { editDistance, nearestName } from '../../src/config/nearest-name.js';

/** Optimal string alignment by plain recursion over the last characters. */
function reference(a: string, b: string): number {
  if (a === '' || b === '') return a.length + b.length;
  const [restA, restB] = [a.slice(0, -1), b.slice(0, -1)];
  const choices = [
    reference(restA, b) + 1,
    reference(a, restB) + 1,
    reference(restA, restB) + (a.at(-1) === b.at(-1) ? 0 : 1),
  ];
  if (a.length > 1 && b.length > 1 && a.at(-1) === b.at(-2) && a.at(-2) === b.at(-1)) {
    choices.push(reference(a.slice(0, -2), b.slice(0, -2)) + 1);
  }
  return Math.min(...choices);
}

it('equals the recursive definition on short words', () => {
  const word = fc.string({ unit: fc.constantFrom('a', 'b', '_'), maxLength: 5 });
  fc.assert(
    fc.property(word, word, (a, b) => {
      expect(editDistance(a, b)).toBe(reference(a, b));
    }),
    { numRuns: 200 },
  );
});

it('finds the name itself, and the earlier of two equally near', () => {
  expect(nearestName('seed', ['sede', 'seed'])).toBe('seed');
  expect(nearestName('ab', ['ax', 'bb'])).toBe('ax');
});
