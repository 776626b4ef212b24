// Goal: the generator gives the published numbers, and bounded draws are unbiased.
import { expect, it } from 'vitest';
import { Random, shuffle } from '../../src/data/random.js';

it('gives the reference numbers of xoshiro128** 1.1', () => {
  // First outputs of the authors' C code from state {1, 2, 3, 4}.
  const random = new Random(Uint32Array.of(1, 2, 3, 4));
  expect(Array.from({ length: 10 }, () => random.next())).toEqual([
    11520, 0, 5927040, 70819200, 2031721883, 1637235492, 1287239034, 3734860849, 3729100597,
    4258142804,
  ]);
});

it('differs by seed and by epoch, and repeats for equal keys', () => {
  const first = (...keys: number[]) => Random.keyed(...keys).next();
  const keys = [0, 1, 2, 42, 2 ** 32 - 1].flatMap((seed) =>
    [0, 1, 2, 3].map((epoch) => [seed, epoch] as const),
  );
  expect(new Set(keys.map((pair) => first(...pair))).size).toBe(keys.length);
  expect(first(42, 1)).toBe(first(42, 1));
  expect(first(1, 2)).not.toBe(first(2, 1));
});

it('draws every order of three items about equally often', () => {
  const random = Random.keyed(42);
  const counts = new Map<string, number>();
  for (let draw = 0; draw < 6000; draw += 1) {
    const items = Uint32Array.of(0, 1, 2);
    shuffle(items, random);
    counts.set(items.join(''), (counts.get(items.join('')) ?? 0) + 1);
  }
  expect(counts.size).toBe(6);
  // Binomial with mean 1000 and deviation 29: five deviations.
  for (const count of counts.values()) expect(Math.abs(count - 1000)).toBeLessThan(145);
});

it('rejects draws that would favour small numbers', () => {
  // With bound 3 * 2^30 a plain remainder gives the lowest quarter twice as often.
  const random = Random.keyed(7);
  const bound = 3 * 2 ** 30;
  let low = 0;
  for (let draw = 0; draw < 3000; draw += 1) {
    const value = random.below(bound);
    expect(value).toBeLessThan(bound);
    if (value < 2 ** 30) low += 1;
  }
  expect(Math.abs(low - 1000)).toBeLessThan(130);
});
