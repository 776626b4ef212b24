// Goal: AdamW gives torch's bits on every instruction set and in TypeScript (fixtures/adamw).
import { createHash } from 'node:crypto';

import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

import type { AdamwScalars } from '../../tiers/native/native-binding.js';
import { power } from '../../tiers/native/portable/adamw-factors.js';
import type { AdamwCase } from './adamw-inputs.js';
import { adamwFixture, floats, gradient, initialParam, scalarsOf } from './adamw-inputs.js';
import { floatsOfBits } from './bits.js';
import { implementationRows, implementations } from './implementations.js';

const caseRows = adamwFixture.cases.map((each, index) => [each.name, index, each] as const);
const bytesOf = (array: Float32Array) =>
  Buffer.from(array.buffer, array.byteOffset, array.byteLength);

/** Gradients of the long case, made once for all implementations. */
const longGradients = new Map<number, Float32Array[]>();
function longGradient(index: number, each: AdamwCase, step: number): Float32Array {
  if (!longGradients.has(index)) {
    longGradients.clear();
    const steps = each.long_sha256.map((_, t) =>
      gradient(index, each, t, adamwFixture.long_length),
    );
    longGradients.set(index, steps);
  }
  return longGradients.get(index)![step]!;
}

describe.each(implementationRows)('AdamW, %s', (_, implementation) => {
  test.each(caseRows)(
    'lengths 1 to 100 equal torch after each of 10 steps: %s',
    (_name, index, each) => {
      const expected = each.short.map((arrays) =>
        arrays.map((text) => Buffer.from(text, 'base64').toString('hex')),
      );
      for (let length = 1; length <= adamwFixture.short_length; length++) {
        // An odd offset, so that no vector is aligned by accident.
        const [param, m, v] = [1, 2, 3].map((offset) =>
          new Float32Array(length + offset).subarray(offset),
        ) as [Float32Array, Float32Array, Float32Array];
        param.set(initialParam(index, each, length));
        for (const [step, arrays] of expected.entries()) {
          const grad = gradient(index, each, step, length);
          implementation.run((k) => k.adamw(param, grad, m, v, scalarsOf(each, step)));
          const actual = [param, m, v].map((array) => bytesOf(array).toString('hex'));
          expect(actual).toEqual(arrays.map((hex) => hex.slice(0, 8 * length)));
        }
      }
    },
  );
});

describe.each(caseRows)('AdamW on 1,000,003 elements, %s', (_, index, each) => {
  test.each(implementationRows)(
    'equals torch after each of 10 steps: %s',
    (_name, implementation) => {
      const length = adamwFixture.long_length;
      const param = initialParam(index, each, length);
      const m = new Float32Array(length);
      const v = new Float32Array(length);
      each.long_sha256.forEach((expected, step) => {
        const grad = longGradient(index, each, step);
        implementation.run((k) => k.adamw(param, grad, m, v, scalarsOf(each, step)));
        const hash = createHash('sha256').update(bytesOf(param)).update(bytesOf(m));
        expect(hash.update(bytesOf(v)).digest('hex')).toBe(expected);
      });
    },
  );
});

describe.skipIf(implementations.length === 1)('AdamW with any hyperparameters', () => {
  const length = 1009;
  // The square root of the bias correction, by which the kernels divide.
  const divisor = fc.oneof(
    fc.integer({ min: 0x3c00_0000, max: 0x3f7f_ffff }).map((bits) => floatsOfBits([bits])[0]!),
    fc.constantFrom(1 - 2 ** -24, 1 - 2 ** -23, 0.5, 0.5 + 2 ** -24, 2 ** -7, 0.75),
  );

  test.each(implementationRows)('equals TypeScript: %s', (_, implementation) => {
    fc.assert(
      fc.property(
        fc.record({
          learningRate: fc.double({ min: 0, max: 1, noNaN: true }),
          beta1: fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true }),
          beta2: divisor.map((root) => 1 - root * root),
          epsilon: fc.constantFrom(0, 1e-12, 1e-8, 1e-3),
          weightDecay: fc.double({ min: 0, max: 1, noNaN: true }),
          step: fc.constant(1),
          gradScale: fc.double({ min: 0, max: 2, noNaN: true }),
        }),
        fc.nat(),
        (scalars, seed) => {
          const results = [implementations[0]!, implementation].map((each) => {
            const [param, grad] = [
              floats(seed, length, [-9, 1]),
              floats(seed + 1, length, [-60, 60]),
            ];
            const [m, v] = [
              floats(seed + 2, length, [-60, 60]),
              floats(seed + 3, length, [-126, 60]),
            ];
            v.forEach((value, i) => (v[i] = i % 50 === 0 ? 0 : Math.abs(value)));
            v[7] = Infinity;
            each.run((k) => k.adamw(param, grad, m, v, scalars));
            return [param, m, v].map((array) => [...array]);
          });
          expect(results[1]).toEqual(results[0]);
        },
      ),
      { numRuns: 150 },
    );
  });
});

describe('AdamW with the split master', () => {
  const length = 10_007;
  const scalars = scalarsOf(adamwFixture.cases[1]!, 3);

  test.each(implementationRows)('equals AdamW on the joined master: %s', (_, implementation) => {
    implementation.run((k) => {
      const master = floats(77, length, [-8, 1]);
      const [mA, mB] = [floats(78, length, [-20, -2]), floats(78, length, [-20, -2])];
      const [vA, vB] = [floats(79, length, [-40, -4]), floats(79, length, [-40, -4])];
      [vA, vB].forEach((v) => v.forEach((value, i) => (v[i] = Math.abs(value))));
      const grad = floats(80, length, [-20, 0]);
      const param = new Uint16Array(length);
      const low = new Uint16Array(length);
      k.splitMaster(master, param, low);

      k.adamw(master, grad, mA, vA, scalars);
      k.adamwSplit(param, low, grad, mB, vB, scalars);

      const joined = new Float32Array(length);
      k.joinMaster(param, low, joined);
      expect(bytesOf(joined).equals(bytesOf(master))).toBe(true);
      expect(bytesOf(mB).equals(bytesOf(mA))).toBe(true);
      expect(bytesOf(vB).equals(bytesOf(vA))).toBe(true);
    });
  });

  test.each(implementationRows)('turns a NaN into 0x7FC00000: %s', (_, implementation) => {
    const param = Uint16Array.of(0x3f80);
    const low = Uint16Array.of(0);
    const moment = () => new Float32Array(1);
    const grad = Float32Array.of(Number.NaN);
    implementation.run((k) => k.adamwSplit(param, low, grad, moment(), moment(), scalars));
    expect([param[0], low[0]]).toEqual([0x7fc0, 0]);
  });
});

describe('AdamW arguments', () => {
  const scalars: AdamwScalars = scalarsOf(adamwFixture.cases[0]!, 0);

  test.each(implementationRows)('unequal lengths are refused: %s', (_, implementation) => {
    const [a, b] = [new Float32Array(4), new Float32Array(5)];
    const halves = new Uint16Array(4);
    implementation.run((k) => {
      expect(() => k.adamw(a, b, a, a, scalars)).toThrow(RangeError);
      expect(() => k.adamw(a, a, b, a, scalars)).toThrow(RangeError);
      expect(() => k.adamw(a, a, a, b, scalars)).toThrow(RangeError);
      expect(() => k.adamwSplit(halves, halves.subarray(1), a, a, a, scalars)).toThrow(RangeError);
    });
  });

  test.each(implementationRows)('a wrong element type is refused: %s', (_, implementation) => {
    const a = new Float32Array(4);
    const wrong = new Float64Array(4) as unknown as Float32Array;
    implementation.run((k) => {
      expect(() => k.adamw(wrong, a, a, a, scalars)).toThrow(TypeError);
      expect(() => k.adamw(a, wrong, a, a, scalars)).toThrow(TypeError);
    });
  });

  test.each(implementationRows)('step 0 and a beta of 1 are refused: %s', (_, implementation) => {
    const a = new Float32Array(1);
    implementation.run((k) => {
      expect(() => k.adamw(a, a, a, a, { ...scalars, beta2: 1 })).toThrow(RangeError);
      expect(() => k.adamw(a, a, a, a, { ...scalars, step: 0 })).toThrow(RangeError);
    });
  });
});

describe('the power of the bias corrections', () => {
  test('equals exact powers, rounded once', () => {
    // Exact by integers: a double is mantissa * 2^exponent.
    const exact = (base: number, exponent: number): number => {
      const scale = 2 ** 60;
      const mantissa = BigInt(base * scale) ** BigInt(exponent);
      const shift = BigInt(mantissa.toString(2).length - 80);
      return Number(mantissa >> shift) * 2 ** (Number(shift) - 60 * exponent);
    };
    for (const base of [0.9, 0.999, 0.95, 0.5, 0.99]) {
      for (const exponent of [1, 2, 3, 5, 8, 10, 13]) {
        expect(power(base, exponent)).toBe(exact(base, exponent));
      }
    }
  });
});
