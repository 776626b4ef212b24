// Goal: elementwise kernels are within 4 ulp of float64 and follow tfjs's broadcasting and types.
import * as tf from '@tensorflow/tfjs-core';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { NativeDtype } from '../../tiers/device/native/native-dtype.js';
import {
  anyFloat,
  anyInt,
  anyShape,
  anyValue,
  cpu,
  expectSame,
  native,
} from './native-kernel-run.js';
import { PLACES, runOne, ulpDistance, value } from './native-kernel-run.js';

/** Series below 3, continued fraction beyond: both to about 1e-15. */
function erf(x: number): number {
  const a = Math.abs(x);
  if (Number.isNaN(x) || a > 6) return Number.isNaN(x) ? NaN : Math.sign(x);
  if (a < 3) {
    let term = a;
    let sum = a;
    for (let n = 1; n < 120; n++) {
      term *= (-a * a) / n;
      sum += term / (2 * n + 1);
    }
    return (x < 0 ? -1 : 1) * sum * (2 / Math.sqrt(Math.PI));
  }
  let fraction = 0;
  for (let n = 60; n > 0; n--) fraction = n / 2 / (a + fraction);
  return Math.sign(x) * (1 - Math.exp(-a * a) / Math.sqrt(Math.PI) / (a + fraction));
}

interface UnaryCase {
  readonly kernel: string;
  readonly of: (x: number) => number;
  /** Most ulp on native; 0.5 is the correctly rounded result. */
  readonly ulp: number;
  readonly attrs?: object;
  /** What tfjs's own formula loses, where it is more than rounding. */
  readonly cpuAbsolute?: number;
}

const softplus = (x: number): number => Math.max(x, 0) + Math.log1p(Math.exp(-Math.abs(x)));

/** Bounds are what a search over four million bit patterns found, rounded up; all below 4. */
const UNARY: readonly UnaryCase[] = [
  { kernel: tf.Abs, of: Math.abs, ulp: 0 },
  { kernel: tf.Neg, of: (x) => -x, ulp: 0 },
  { kernel: tf.Square, of: (x) => x * x, ulp: 0.5 },
  { kernel: tf.Sqrt, of: Math.sqrt, ulp: 0.5 },
  { kernel: tf.Reciprocal, of: (x) => 1 / x, ulp: 0.5 },
  { kernel: tf.Rsqrt, of: (x) => 1 / Math.sqrt(x), ulp: 1.5 },
  { kernel: tf.Floor, of: Math.floor, ulp: 0 },
  { kernel: tf.Ceil, of: Math.ceil, ulp: 0 },
  { kernel: tf.Exp, of: Math.exp, ulp: 1.1 },
  { kernel: tf.Expm1, of: Math.expm1, ulp: 1.5 },
  { kernel: tf.Log, of: Math.log, ulp: 0.9 },
  { kernel: tf.Log1p, of: Math.log1p, ulp: 1.6 },
  { kernel: tf.Sin, of: Math.sin, ulp: 1.7 },
  { kernel: tf.Cos, of: Math.cos, ulp: 1.7 },
  { kernel: tf.Tanh, of: Math.tanh, ulp: 1.4 },
  { kernel: tf.Sigmoid, of: (x) => 1 / (1 + Math.exp(-x)), ulp: 2.3 },
  { kernel: tf.Softplus, of: softplus, ulp: 2, cpuAbsolute: 2e-6 },
  { kernel: tf.Erf, of: erf, ulp: 1.1, cpuAbsolute: 3e-7 },
  { kernel: tf.Elu, of: (x) => (x >= 0 ? x : Math.expm1(x)), ulp: 1.5, cpuAbsolute: 1e-7 },
  { kernel: tf.Relu, of: (x) => Math.max(0, x), ulp: 0 },
  { kernel: tf.Relu6, of: (x) => Math.min(Math.max(0, x), 6), ulp: 0 },
  { kernel: tf.Sign, of: (x) => (x > 0 ? 1 : x < 0 ? -1 : 0), ulp: 0 },
  {
    kernel: tf.Step,
    of: (x) => (Number.isNaN(x) ? NaN : x > 0 ? 1 : 0.25),
    ulp: 0,
    attrs: { alpha: 0.25 },
  },
  {
    kernel: tf.LeakyRelu,
    of: (x) => (x < 0 ? Math.fround(0.2) * x : x),
    ulp: 0.5,
    attrs: { alpha: Math.fround(0.2) },
  },
  {
    kernel: tf.ClipByValue,
    of: (x) => (Number.isNaN(x) ? NaN : Math.min(Math.max(x, -2), 3)),
    ulp: 0,
    attrs: { clipValueMin: -2, clipValueMax: 3 },
  },
  { kernel: tf.IsNan, of: (x) => Number(Number.isNaN(x)), ulp: 0 },
  { kernel: tf.IsInf, of: (x) => Number(Math.abs(x) === Infinity), ulp: 0 },
  { kernel: tf.IsFinite, of: (x) => Number(Number.isFinite(x)), ulp: 0 },
];

describe.each(UNARY)('$kernel', ({ kernel, of, ulp, attrs, cpuAbsolute }) => {
  it.each(PLACES)('is the function of float64, on $name, for any numbers and shape', (place) => {
    const operands = anyShape(0, 3).chain((shape) => anyValue('float32', shape, anyFloat));
    const property = fc.property(operands, (x) => {
      const got = runOne(place, kernel, { x }, attrs);
      expect(got.shape).toEqual(x.shape);
      x.data.forEach((element, i) => {
        const want = of(element);
        const bound = place.name === 'native' ? ulp : 0.51;
        if (place.name === 'cpu' && cpuAbsolute !== undefined) {
          const off = Math.abs(got.data[i]! - want);
          expect(off <= cpuAbsolute * Math.max(1, Math.abs(want)) || !(off < Infinity)).toBe(true);
        } else if (ulpDistance(got.data[i]!, want) > bound) {
          expect.fail(`${kernel}(${element}) is ${got.data[i]}, not ${want}`);
        }
      });
    });
    fc.assert(property, { numRuns: 25 });
  });

  it('keeps within its bound over all float32 exponents', () => {
    const patterns = new Uint32Array(60_000).map((_, i) => i * 71_581 + 7);
    const x = {
      dtype: 'float32',
      shape: [patterns.length],
      data: new Float32Array(patterns.buffer),
    };
    const got = runOne(native, kernel, { x: x as ReturnType<typeof value> }, attrs).data;
    let worst = { ulp: 0, at: 0 };
    x.data.forEach((element, i) => {
      const distance = ulpDistance(got[i]!, of(element));
      if (distance > worst.ulp) worst = { ulp: distance, at: element };
    });
    expect(worst.ulp, `at ${worst.at}`).toBeLessThanOrEqual(ulp + 1e-6);
  });
});

describe('unary kernels of integers and bool', () => {
  // tfjs's own Abs and Square pass integers through float32, so the oracle is JavaScript's Int32Array.
  it.each([
    [tf.Abs, Math.abs],
    [tf.Neg, (x: number) => -x],
    [tf.Square, (x: number) => x * x],
    [tf.Sign, Math.sign],
    [tf.Relu, (x: number) => Math.max(0, x)],
    [tf.Floor, (x: number) => x],
    [tf.Ceil, (x: number) => x],
    [tf.Round, (x: number) => x],
    [tf.Step, (x: number) => Number(x > 0)],
  ] as const)('%s of int32 is JavaScript wrapped to 32 bits', (kernel, of) => {
    const operands = anyShape(0, 3).chain((shape) => anyValue('int32', shape));
    const property = fc.property(operands, (x) => {
      const want = { ...x, data: Int32Array.from([...x.data].map(of)) };
      expectSame(runOne(native, kernel, { x }, { alpha: 0 }), want, kernel);
    });
    fc.assert(property, { numRuns: 20 });
  });

  it('LogicalNot negates, and rounding goes to the even neighbour', () => {
    const x = value('bool', [3], [1, 0, 1]);
    expect([...runOne(native, tf.LogicalNot, { x }).data]).toEqual([0, 1, 0]);
    const halves = value('float32', [6], [0.5, 1.5, -0.5, -1.5, 2.5, NaN]);
    expectSame(
      runOne(native, tf.Round, { x: halves }),
      runOne(cpu, tf.Round, { x: halves }),
      'Round',
    );
  });

  it('Cast converts as JavaScript does, wrapping what does not fit', () => {
    const types: NativeDtype[] = ['float32', 'int32', 'bool'];
    const wide = fc.oneof(anyFloat, fc.float({ min: Math.fround(-1e12), max: Math.fround(1e12) }));
    for (const from of types) {
      for (const dtype of types) {
        const element = from === 'float32' ? wide : undefined;
        const operand = anyShape(0, 2, 40).chain((shape) => anyValue(from, shape, element));
        const property = fc.property(operand, (x) => {
          const got = runOne(native, tf.Cast, { x }, { dtype });
          const arrays = { float32: Float32Array, int32: Int32Array, bool: Uint8Array } as const;
          const plain = dtype === 'bool' ? [...x.data].map((v) => Number(v !== 0)) : [...x.data];
          expectSame(got, { dtype, shape: x.shape, data: arrays[dtype].from(plain) }, dtype);
        });
        fc.assert(property, { numRuns: 20 });
      }
    }
  });
});

const ARITHMETIC = [tf.Add, tf.Sub, tf.Multiply, tf.RealDiv, tf.Maximum, tf.Minimum, tf.Pow];
const OTHERS = [tf.SquaredDifference, tf.Mod, tf.FloorDiv];
const COMPARISONS = [tf.Equal, tf.NotEqual, tf.Less, tf.LessEqual, tf.Greater, tf.GreaterEqual];

/** Two shapes that broadcast together. */
const broadcastShapes = anyShape(0, 5, 4).chain((shape) => {
  const narrowed = fc
    .tuple(fc.array(fc.boolean(), { minLength: 5, maxLength: 5 }), fc.nat({ max: shape.length }))
    .map(([ones, drop]) => shape.map((d, k) => (ones[k]! ? 1 : d)).slice(drop));
  return fc.tuple(narrowed, narrowed);
});

describe.each([...ARITHMETIC, ...OTHERS, ...COMPARISONS])('%s', (kernel) => {
  it.each(['float32', 'int32', 'bool'] as const)(
    'of %s broadcasts and computes as tfjs',
    (dtype) => {
      const small = dtype === 'int32' && kernel === tf.Pow;
      const element = small ? fc.integer({ min: -6, max: 9 }) : undefined;
      const operands = broadcastShapes.chain(([a, b]) =>
        fc.tuple(anyValue(dtype, a, element), anyValue(dtype, b, element)),
      );
      const property = fc.property(operands, ([a, b]) => {
        const got = runOne(native, kernel, { a, b });
        const want = runOne(cpu, kernel, { a, b });
        if (kernel === tf.SquaredDifference && dtype === 'float32') {
          // tfjs rounds once; here the difference is rounded, and then the square.
          expect(got.shape).toEqual(want.shape);
          got.data.forEach((x, i) => expect(ulpDistance(x, want.data[i]!)).toBeLessThanOrEqual(3));
        } else {
          expectSame(got, want, kernel);
        }
      });
      fc.assert(property, { numRuns: 40 });
    },
  );
});

describe('logical and selecting kernels', () => {
  it.each([tf.LogicalAnd, tf.LogicalOr])('%s broadcasts as tfjs', (kernel) => {
    const operands = broadcastShapes.chain(([a, b]) =>
      fc.tuple(anyValue('bool', a), anyValue('bool', b)),
    );
    const property = fc.property(operands, ([a, b]) =>
      expectSame(runOne(native, kernel, { a, b }), runOne(cpu, kernel, { a, b }), kernel),
    );
    fc.assert(property, { numRuns: 30 });
  });

  it.each(['float32', 'int32', 'bool'] as const)('Select of %s takes t where true', (dtype) => {
    const operands = anyShape(0, 3).chain((s) =>
      fc.record({ condition: anyValue('bool', s), t: anyValue(dtype, s), e: anyValue(dtype, s) }),
    );
    const property = fc.property(operands, (inputs) =>
      expectSame(runOne(native, tf.Select, inputs), runOne(cpu, tf.Select, inputs), 'Select'),
    );
    fc.assert(property, { numRuns: 30 });
  });

  it.each(['float32', 'int32'] as const)('AddN of %s adds from left to right', (dtype) => {
    const element = dtype === 'float32' ? anyFloat : anyInt;
    const operands = anyShape(0, 2, 30).chain((shape) =>
      fc.array(anyValue(dtype, shape, element), { minLength: 1, maxLength: 5 }),
    );
    const property = fc.property(operands, (tensors) => {
      const want = tensors[0]!.data.slice();
      for (const { data } of tensors.slice(1)) data.forEach((x, i) => (want[i] = want[i]! + x));
      expectSame(runOne(native, tf.AddN, tensors), { ...tensors[0]!, data: want }, 'AddN');
    });
    fc.assert(property, { numRuns: 30 });
  });
});
