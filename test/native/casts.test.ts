// Goal: casts between float32 and 16 bits round to nearest even, with the same bits everywhere.
import { describe, expect, test } from 'vitest';

import { bitsOfFloats, floatsOfBits, sampledBits } from './bits.js';
import { implementationRows } from './implementations.js';

const ALL_HALVES = Uint16Array.from({ length: 65_536 }, (_, i) => i);
/** About 1.05 million patterns. */
const patterns = sampledBits(4099);

/** The value of a 16-bit format with `mantissaBits`, computed from its definition. */
function valueOf(bits: number, mantissaBits: number): number {
  const exponentBits = 15 - mantissaBits;
  const bias = 2 ** (exponentBits - 1) - 1;
  const mantissa = bits & (2 ** mantissaBits - 1);
  const exponent = (bits >>> mantissaBits) & (2 ** exponentBits - 1);
  const sign = bits >>> 15 === 1 ? -1 : 1;
  if (exponent === 2 ** exponentBits - 1) return mantissa === 0 ? sign * Infinity : Number.NaN;
  const scale = 2 ** (Math.max(exponent, 1) - bias - mantissaBits);
  return sign * (exponent === 0 ? mantissa : mantissa + 2 ** mantissaBits) * scale;
}

/** Bits of the nearest value of the format, ties to even, by search in the list of its values. */
function nearestBits(value: number, magnitudes: Float64Array): number {
  const sign = Object.is(value, -0) || value < 0 ? 0x8000 : 0;
  const magnitude = Math.abs(value);
  let low = 0;
  let high = magnitudes.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >>> 1;
    if (magnitudes[middle]! <= magnitude) low = middle;
    else high = middle;
  }
  const below = magnitude - magnitudes[low]!;
  const above = magnitudes[high]! - magnitude;
  const pickHigh = above < below || (above === below && high % 2 === 0);
  return sign | (pickHigh ? high : low);
}

/** Finite magnitudes in bit order, then one more step up, which stands for infinity. */
function magnitudesOf(mantissaBits: number): Float64Array {
  const infinity = 2 ** 15 - 2 ** mantissaBits;
  const last = valueOf(infinity - 1, mantissaBits);
  const step = last - valueOf(infinity - 2, mantissaBits);
  return Float64Array.from({ length: infinity + 1 }, (_, bits) =>
    bits === infinity ? last + step : valueOf(bits, mantissaBits),
  );
}

const formats = [
  ['float16', 10, 'f16ToF32', 'f32ToF16'],
  ['bfloat16', 7, 'bf16ToF32', 'f32ToBf16'],
] as const;

describe.each(formats)('%s', (_format, mantissaBits, widen, narrow) => {
  const magnitudes = magnitudesOf(mantissaBits);
  const infinity = magnitudes.length - 1;
  const expected = Uint16Array.from(floatsOfBits(patterns), (value, i) => {
    if (!Number.isNaN(value)) return nearestBits(value, magnitudes);
    // Sign and top mantissa bits stay; the quiet bit is set.
    const bits = patterns[i]!;
    const mantissa = (bits & 0x7f_ffff) >>> (23 - mantissaBits);
    return ((bits >>> 16) & 0x8000) | infinity | (1 << (mantissaBits - 1)) | mantissa;
  });

  test.each(implementationRows)('all 65,536 patterns widen to their value: %s', (_, each) => {
    const target = new Float32Array(ALL_HALVES.length);
    each.run((k) => k[widen](ALL_HALVES, target));
    const wrong = ALL_HALVES.filter(
      (bits) =>
        !Object.is(target[bits]!, valueOf(bits, mantissaBits) || valueOf(bits, mantissaBits)),
    );
    expect([...wrong.subarray(0, 5)]).toEqual([]);
  });

  test.each(implementationRows)('widening and narrowing gives the pattern back: %s', (_, each) => {
    const wide = new Float32Array(ALL_HALVES.length);
    const narrowed = new Uint16Array(ALL_HALVES.length);
    each.run((k) => {
      k[widen](ALL_HALVES, wide);
      k[narrow](wide, narrowed);
    });
    const quieted = ALL_HALVES.map((bits) =>
      Number.isNaN(valueOf(bits, mantissaBits)) ? bits | (1 << (mantissaBits - 1)) : bits,
    );
    expect(narrowed.findIndex((bits, i) => bits !== quieted[i])).toBe(-1);
  });

  test.each(implementationRows)(
    'a stride over all float32 patterns narrows to the nearest, ties to even: %s',
    (_, each) => {
      const target = new Uint16Array(patterns.length);
      each.run((k) => k[narrow](floatsOfBits(patterns), target));
      const wrong = patterns.filter((_bits, i) => target[i] !== expected[i]);
      expect([...wrong.subarray(0, 5)]).toEqual([]);
    },
  );

  test('every implementation widens NaNs to the same bits', () => {
    const results = implementationRows.map(([, each]) => {
      const target = new Float32Array(ALL_HALVES.length);
      each.run((k) => k[widen](ALL_HALVES, target));
      return bitsOfFloats(target);
    });
    const differing = results.map((result) => result.findIndex((b, i) => b !== results[0]![i]));
    expect(differing).toEqual(results.map(() => -1));
  });

  test.each(implementationRows)('short and unaligned views are converted whole: %s', (_, each) => {
    for (let length = 0; length < 70; length++) {
      const source = floatsOfBits(patterns.subarray(1000, 1000 + length + 1)).subarray(1);
      const target = new Uint16Array(length + 2).fill(0xabcd);
      each.run((k) => k[narrow](source, target.subarray(1, length + 1)));
      expect([...target]).toEqual([0xabcd, ...expected.subarray(1001, 1001 + length), 0xabcd]);
    }
  });

  test.each(implementationRows)('unequal lengths and wrong types are refused: %s', (_, each) => {
    const [floats, halves] = [new Float32Array(3), new Uint16Array(4)];
    each.run((k) => {
      expect(() => k[narrow](floats, halves)).toThrow(RangeError);
      expect(() => k[widen](halves, floats)).toThrow(RangeError);
      expect(() => k[widen](floats as unknown as Uint16Array, floats)).toThrow(TypeError);
    });
  });
});
