// Goal: accumulate adds in float32, element by element, everywhere alike.
import { describe, expect, test } from 'vitest';

import { floats } from './adamw-inputs.js';
import { implementationRows } from './implementations.js';

describe.each(implementationRows)('accumulate, %s', (_, each) => {
  test.each([0, 1, 7, 16, 33, 100, 10_007])('%i elements, also in shared memory', (length) => {
    const memory = new SharedArrayBuffer(4 * (length + 2));
    const target = new Float32Array(memory, 4, length);
    const before = floats(1, length, [-30, 30]);
    const source = floats(2, length, [-30, 30]);
    target.set(before);
    each.run((k) => k.accumulate(target, source));
    const expected = before.map((value, i) => Math.fround(value + source[i]!));
    expect([...target]).toEqual([...expected]);
    const whole = new Float32Array(memory);
    expect([whole[0], whole[length + 1]]).toEqual([0, 0]);
  });

  test('unequal lengths are refused', () => {
    each.run((k) =>
      expect(() => k.accumulate(new Float32Array(3), new Float32Array(4))).toThrow(RangeError),
    );
  });
});
