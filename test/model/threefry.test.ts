// Goal: the counter-based generator is Threefry-2x32-20: the authors' known answers.
import { expect, it } from 'vitest';
import { threefry2x32 } from '../../src/model/threefry.js';

/** Random123's kat_vectors, `threefry2x32 20`: counter, key, result. */
const KNOWN = [
  [0, 0, 0, 0, 0x6b200159, 0x99ba4efe],
  [0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0x1cb996fc, 0xbb002be7],
  [0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xc4923a9c, 0x483df7a0],
] as const;

it.each(KNOWN)(
  'gives the known answer for counter %i %i, key %i %i',
  (low, high, k0, k1, r0, r1) => {
    const out = new Uint32Array(2);
    threefry2x32([k0, k1], low, high, out);
    expect([...out]).toEqual([r0, r1]);
  },
);
