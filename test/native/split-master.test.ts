// Goal: the split master is exact; scripts/check-split-master.mjs runs all 2^32 patterns.
import { describe, expect, test } from 'vitest';

import { bitsOfFloats, floatsOfBits, sampledBits } from './bits.js';
import { implementationRows } from './implementations.js';

/** About 1.05 million patterns. */
const patterns = sampledBits(4099);
const isNan = (bits: number) => (bits & 0x7fff_ffff) > 0x7f80_0000;

describe.each(implementationRows)('split master, %s', (_, each) => {
  const param = new Uint16Array(patterns.length);
  const low = new Uint16Array(patterns.length);
  const joined = new Float32Array(patterns.length);
  each.run((k) => {
    k.splitMaster(floatsOfBits(patterns), param, low);
    k.joinMaster(param, low, joined);
  });

  test('joining gives every pattern back, and one NaN for all NaNs', () => {
    const expected = patterns.map((bits) => (isNan(bits) ? 0x7fc0_0000 : bits));
    const actual = bitsOfFloats(joined);
    const wrong = expected.filter((bits, i) => actual[i] !== bits);
    expect([...wrong.subarray(0, 5)]).toEqual([]);
  });

  test('the bf16 half is nearest, ties away from zero, and the low half is the low bits', () => {
    let wrong = 0;
    patterns.forEach((pattern, i) => {
      const bits = isNan(pattern) ? 0x7fc0_0000 : pattern;
      const high = Math.floor(bits / 65_536);
      // The bits of one sign ascend with the magnitude, so the remainder alone tells the nearer.
      const rounded = bits % 65_536 >= 32_768 ? high + 1 : high;
      if (param[i] !== rounded % 65_536 || low[i] !== bits % 65_536) wrong += 1;
    });
    expect(wrong).toBe(0);
  });

  test('lengths that fill no vector leave their neighbours alone', () => {
    for (let length = 0; length < 70; length++) {
      const master = floatsOfBits(patterns.subarray(5000, 5000 + length));
      const [p, l] = [new Uint16Array(length + 2).fill(7), new Uint16Array(length + 2).fill(9)];
      const back = new Float32Array(length + 2).fill(5);
      const inner = <T extends Uint16Array | Float32Array>(array: T) =>
        array.subarray(1, length + 1) as T;
      each.run((k) => {
        k.splitMaster(master, inner(p), inner(l));
        k.joinMaster(inner(p), inner(l), inner(back));
      });
      expect([p[0], p[length + 1], l[0], l[length + 1]]).toEqual([7, 7, 9, 9]);
      expect([back[0], back[length + 1]]).toEqual([5, 5]);
      expect(bitsOfFloats(inner(back))).toEqual(bitsOfFloats(master));
    }
  });

  test('unequal lengths are refused', () => {
    const [floats, halves] = [new Float32Array(3), new Uint16Array(4)];
    each.run((k) => {
      expect(() => k.splitMaster(floats, halves, halves)).toThrow(RangeError);
      expect(() => k.joinMaster(halves, halves, floats)).toThrow(RangeError);
      expect(() => k.joinMaster(halves, halves.subarray(1), floats)).toThrow(RangeError);
    });
  });
});
