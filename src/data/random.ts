/**
 * @file The generator behind shuffling: xoshiro128** 1.1 (Blackman and Vigna, 2018), in 32-bit
 * integers, so that every machine draws the same numbers.
 *
 * The state is filled by splitmix32 (the finaliser of MurmurHash3 over a Weyl sequence) from a hash
 * of the keys.
 */

/** Draws unsigned 32-bit integers. */
export class Random {
  readonly #state: Uint32Array;

  /** @param state four words, not all zero; mutated */
  constructor(state: Uint32Array) {
    this.#state = state;
  }

  /** A generator for a list of unsigned 32-bit keys, such as (seed, epoch). */
  static keyed(...keys: number[]): Random {
    let hash = keys.reduce((mixed, key) => finalise(mixed ^ finalise(key + GOLDEN)), keys.length);
    const state = new Uint32Array(4);
    for (let word = 0; word < 4; word += 1) {
      hash = (hash + GOLDEN) >>> 0;
      state[word] = finalise(hash);
    }
    return new Random(state);
  }

  /** The next unsigned 32-bit integer. */
  next(): number {
    const s = this.#state;
    const result = Math.imul(rotateLeft(Math.imul(s[1]!, 5), 7), 9) >>> 0;
    const shifted = s[1]! << 9;
    s[2]! ^= s[0]!;
    s[3]! ^= s[1]!;
    s[1]! ^= s[2]!;
    s[0]! ^= s[3]!;
    s[2]! ^= shifted;
    s[3] = rotateLeft(s[3]!, 11);
    return result;
  }

  /** A whole number from 0 to below `bound` (at most 2^32), all equally likely. */
  below(bound: number): number {
    // Draws at or above the largest multiple of `bound` would favour small numbers.
    const limit = 2 ** 32 - (2 ** 32 % bound);
    for (;;) {
      const value = this.next();
      if (value < limit) return value % bound;
    }
  }
}

/** 2^32 over the golden ratio: the Weyl increment of splitmix32. */
const GOLDEN = 0x9e3779b9;

function finalise(value: number): number {
  let z = value | 0;
  z = Math.imul(z ^ (z >>> 16), 0x85ebca6b);
  z = Math.imul(z ^ (z >>> 13), 0xc2b2ae35);
  return (z ^ (z >>> 16)) >>> 0;
}

function rotateLeft(value: number, bits: number): number {
  return (value << bits) | (value >>> (32 - bits));
}

/** Shuffles in place (Fisher and Yates, from the end). */
export function shuffle(items: Uint32Array, random: Random): void {
  for (let last = items.length - 1; last > 0; last -= 1) {
    const other = random.below(last + 1);
    const kept = items[last]!;
    items[last] = items[other]!;
    items[other] = kept;
  }
}
