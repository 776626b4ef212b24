// Goal: the TypeScript fma rounds once, always: against exact integers and against the processor.
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

import { native } from '../../tiers/native/binding.js';
import { fusedMultiplyAdd } from '../../tiers/native/portable/fused-multiply-add.js';
import { bitsOfFloats, edgeBits, floatsOfBits } from './bits.js';

/** A finite float32 as an integer multiple of 2^-149. */
function units(value: number): bigint {
  const [bits] = bitsOfFloats(Float32Array.of(value)) as unknown as [number];
  const exponent = (bits >>> 23) & 0xff;
  const mantissa = BigInt((bits & 0x7f_ffff) | (exponent === 0 ? 0 : 0x80_0000));
  const magnitude = mantissa << BigInt(Math.max(exponent, 1) - 1);
  return bits >>> 31 === 1 ? -magnitude : magnitude;
}

/** The float32 nearest to `value * 2^-298`, ties to even, found by integers alone. */
function nearest(value: bigint): number {
  const magnitude = value < 0n ? -value : value;
  const length = magnitude.toString(2).length;
  // The last bit that float32 keeps: 24 from the top, and not below 2^-149 (bit 149 here).
  const drop = BigInt(Math.max(length - 24, 149));
  let kept = magnitude >> drop;
  const rest = magnitude - (kept << drop);
  const half = 1n << (drop - 1n);
  if (rest > half || (rest === half && (kept & 1n) === 1n)) kept += 1n;
  const result = Math.fround(Number(kept) * 2 ** (Number(drop) - 298));
  return value < 0n ? -result : result;
}

const finite = fc.integer({ min: 0, max: 0xffff_ffff }).map((bits) => {
  const exponent = (bits >>> 23) & 0xff;
  return floatsOfBits([exponent === 255 ? bits ^ 0x4000_0000 : bits])[0]!;
});

/**
 * A triple whose sum lies beside the middle of two float32, by less than double can hold: `c` has
 * the bits given; `a * b` is half its last place times 1 - n^2 2^-46 or 1 + j^3 2^-36.
 */
function besideMiddle(bits: number, choice: number): [a: number, b: number, c: number] {
  const exponent = (bits >>> 23) & 0xff;
  const c = floatsOfBits([exponent === 255 ? bits ^ 0x4000_0000 : bits])[0]!;
  const half = Math.max(exponent === 255 ? 127 : exponent, 1) - 151;
  const size = (choice >>> 2) + 1;
  const x = choice % 2 === 0 ? size * 2 ** -23 : Math.min(size, 3) * 2 ** -12;
  const y = choice % 2 === 0 ? x : x - x * x;
  const sign = choice % 4 < 2 ? 1 : -1;
  const shift = Math.floor(half / 2);
  return [sign * (1 + x) * 2 ** shift, (1 - y) * 2 ** (half - shift), c];
}

/** What the processor computes; NaN payloads aside. */
function mismatches(a: Float32Array, b: Float32Array, c: Float32Array): number[][] {
  const expected = new Float32Array(a.length);
  native()!.fusedMultiplyAdd(a, b, c, expected);
  const wrong: number[][] = [];
  for (let i = 0; i < a.length; i++) {
    const actual = fusedMultiplyAdd(a[i]!, b[i]!, c[i]!);
    if (!Object.is(actual, expected[i]!)) wrong.push([a[i]!, b[i]!, c[i]!, actual, expected[i]!]);
  }
  return wrong;
}

let state = 1;
/** A random bit pattern, the same in each run. */
function random(): number {
  state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
  return (state ^ (state >>> 15)) >>> 0;
}

describe('fusedMultiplyAdd', () => {
  test('equals exact integer arithmetic on random finite numbers', () => {
    fc.assert(
      fc.property(finite, finite, finite, (a, b, c) => {
        const exact = units(a) * units(b) + (units(c) << 149n);
        if (exact === 0n) return fusedMultiplyAdd(a, b, c) === 0;
        return Object.is(fusedMultiplyAdd(a, b, c), nearest(exact));
      }),
      { numRuns: 20_000 },
    );
  });

  test('equals exact integer arithmetic just beside the middle of two float32', () => {
    fc.assert(
      fc.property(fc.integer({ min: 0, max: 0xffff_ffff }), fc.nat(15), (bits, choice) => {
        const [a, b, c] = besideMiddle(bits, choice);
        const exact = units(a) * units(b) + (units(c) << 149n);
        return Object.is(fusedMultiplyAdd(a, b, c), nearest(exact));
      }),
      { numRuns: 20_000 },
    );
  });

  test('ties that double rounding would get wrong', () => {
    // Products just off 2^-24, by less than the double sum can hold; each is a middle's offset.
    const below = [1 + 2 ** -23, 2 ** -24 * (1 - 2 ** -23)] as const;
    const above = [1 + 2 ** -12, 2 ** -24 * (1 - 2 ** -12 + 2 ** -24)] as const;
    const odd = 1 + 2 ** -23;
    expect(Math.fround(below[0] * below[1] + odd)).toBe(1 + 2 ** -22);
    expect(fusedMultiplyAdd(...below, odd)).toBe(odd);
    expect(fusedMultiplyAdd(-below[0], below[1], -odd)).toBe(-odd);
    expect(Math.fround(above[0] * above[1] + 1)).toBe(1);
    expect(fusedMultiplyAdd(...above, 1)).toBe(odd);
    expect(fusedMultiplyAdd(-above[0], above[1], -1)).toBe(-odd);
    const max = 2 ** 128 - 2 ** 104;
    expect(fusedMultiplyAdd(2 ** 64, 2 ** 39, max)).toBe(Number.POSITIVE_INFINITY);
    expect(fusedMultiplyAdd(2 ** 64 * (1 - 2 ** -24), 2 ** 39, max)).toBe(max);
    expect(fusedMultiplyAdd(-(2 ** 64) * (1 - 2 ** -24), 2 ** 39, -max)).toBe(-max);
  });

  test('special values follow IEEE 754', () => {
    const infinity = Number.POSITIVE_INFINITY;
    expect(fusedMultiplyAdd(infinity, 0, 1)).toBeNaN();
    expect(fusedMultiplyAdd(infinity, 1, -infinity)).toBeNaN();
    expect(fusedMultiplyAdd(Number.NaN, 1, 1)).toBeNaN();
    expect(fusedMultiplyAdd(-0, 1, -0)).toBe(-0);
    expect(fusedMultiplyAdd(1, 1, -1)).toBe(0);
  });

  describe.skipIf(native() === undefined)('against the processor', () => {
    test('random bit patterns, 1 million', () => {
      const count = 1_000_000;
      const [a, b, c] = [0, 1, 2].map(() => floatsOfBits(Array.from({ length: count }, random)));
      // Every other triple is brought to one scale, where sums round and cancel.
      for (let i = 0; i < count; i += 2) {
        c![i] = a![i]! * b![i]! * (i % 4 === 0 ? -1 - (i % 64) * 2 ** -20 : 2 ** (i % 49));
      }
      expect(mismatches(a!, b!, c!)).toEqual([]);
    });

    test('100,000 sums beside middles, of which rounding twice gets a fourth wrong', () => {
      const triples = Array.from({ length: 100_000 }, (_, i) => besideMiddle(random(), i % 16));
      const [a, b, c] = [0, 1, 2].map((k) => Float32Array.from(triples, (triple) => triple[k]!));
      expect(mismatches(a!, b!, c!)).toEqual([]);
      const twice = triples.filter(
        ([x, y, z]) => Math.fround(x * y + z) !== fusedMultiplyAdd(x, y, z),
      );
      expect(twice.length).toBeGreaterThan(20_000);
    });

    test('all triples of edge patterns', () => {
      const edges = edgeBits().filter((_, i) => i < 24 || i % 151 === 0);
      const triples = edges.flatMap((x) => edges.flatMap((y) => edges.map((z) => [x, y, z])));
      const column = (index: number) => floatsOfBits(triples.map((triple) => triple[index]!));
      expect(mismatches(column(0), column(1), column(2))).toEqual([]);
    });
  });
});
