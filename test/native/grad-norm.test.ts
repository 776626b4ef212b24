// Goal: norm leaves are sums in one fixed order, and independent of how a group is cut into shards.
import { describe, expect, test } from 'vitest';

import { NORM_LEAF_ELEMENTS } from '../../core/types.js';
import { floats } from './adamw-inputs.js';
import { implementationRows } from './implementations.js';

const lengths = [0, 1, 15, 16, 17, 100, 4095, 4096, 4097, 8192, 100_003];

/** From the definition: lane i mod 16, ascending; then lanes ascending. */
function reference(values: Float32Array): Float64Array {
  const leaves: number[] = [];
  for (let start = 0; start < values.length; start += NORM_LEAF_ELEMENTS) {
    const leaf = values.subarray(start, start + NORM_LEAF_ELEMENTS);
    let sum = 0;
    for (let lane = 0; lane < 16; lane++) {
      let laneSum = 0;
      for (let i = lane; i < leaf.length; i += 16) laneSum += leaf[i]! * leaf[i]!;
      sum += laneSum;
    }
    leaves.push(sum);
  }
  return Float64Array.from(leaves);
}

describe.each(implementationRows)('squaredNormLeaves, %s', (_, each) => {
  const leavesOf = (values: Float32Array) => {
    const leaves = new Float64Array(Math.ceil(values.length / NORM_LEAF_ELEMENTS));
    each.run((k) => k.squaredNormLeaves(values, leaves));
    return leaves;
  };

  test.each(lengths)('%i elements are summed in the defined order', (length) => {
    const values = floats(5, length + 1, [-20, 20]).subarray(1);
    expect(leavesOf(values)).toEqual(reference(values));
  });

  test('shards that end at leaves give the leaves of the whole', () => {
    const values = floats(6, 40_000, [-20, 20]);
    const cut = 3 * NORM_LEAF_ELEMENTS;
    const parts = [values.subarray(0, cut), values.subarray(cut)].map(leavesOf);
    expect(Float64Array.from(parts.flatMap((part) => [...part]))).toEqual(leavesOf(values));
  });

  test('squares that overflow float32 do not overflow', () => {
    expect(leavesOf(Float32Array.of(2 ** 100, 2 ** -100))).toEqual(Float64Array.of(2 ** 200));
  });

  test('an infinity or a NaN shows', () => {
    expect(leavesOf(Float32Array.of(1, -Infinity))[0]).toBe(Infinity);
    expect(leavesOf(Float32Array.of(1, Number.NaN))[0]).toBeNaN();
  });

  test('a wrong number of leaves is refused', () => {
    each.run((k) => {
      const values = new Float32Array(4097);
      expect(() => k.squaredNormLeaves(values, new Float64Array(1))).toThrow(RangeError);
    });
  });
});
