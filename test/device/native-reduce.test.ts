// Goal: reductions are within 1e-6 of float64 relative to the sum of magnitudes; the rest is exact.
import * as tf from '@tensorflow/tfjs-core';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { NativeDtype } from '../../tiers/device/native/native-dtype.js';
import { anyFloat, anyShape, anyValue, cpu, expectSame, native } from './native-kernel-run.js';
import { PLACES, runOne, value, type Value } from './native-kernel-run.js';
import { randomValues } from './tfjs-setup.js';

const TYPES = ['float32', 'int32', 'bool'] as const;

/** Attributes: some of a rank's axes, in any order, negative or not. */
const axesOf = (rank: number): fc.Arbitrary<number[]> =>
  fc
    .shuffledSubarray(Array.from({ length: rank }, (_, k) => k))
    .chain((axes) => fc.boolean().map((back) => axes.map((k) => (back ? k - rank : k))));

interface Case {
  readonly x: Value;
  readonly axis: number[];
  readonly keepDims: boolean;
}

/** `full` leaves out empty dimensions. */
function cases(dtype: NativeDtype, full = false, element = anyFloat): fc.Arbitrary<Case> {
  const shapes = anyShape(1, 5, 6).map((shape) =>
    full ? shape.map((d) => Math.max(d, 1)) : shape,
  );
  return shapes.chain((shape) =>
    fc.record({
      x: dtype === 'float32' ? anyValue(dtype, shape, element) : anyValue(dtype, shape),
      axis: axesOf(shape.length),
      keepDims: fc.boolean(),
    }),
  );
}

/** Sums in float64 of the values, and of their magnitudes, per output element. */
function sums({ x, axis }: Pick<Case, 'x' | 'axis'>): { sum: Float64Array; size: Float64Array } {
  const rank = x.shape.length;
  const axes = axis.map((k) => (k + rank) % rank);
  const kept = x.shape.map((length, k) => (axes.includes(k) ? 1 : length));
  const count = tf.util.sizeFromShape(kept);
  const sum = new Float64Array(count);
  const size = new Float64Array(count);
  x.data.forEach((element, i) => {
    const at = tf.util.indexToLoc(i, rank, tf.util.computeStrides([...x.shape]));
    const own = at.map((index, k) => (axes.includes(k) ? 0 : index));
    const out = tf.util.locToIndex(own, rank, tf.util.computeStrides(kept));
    sum[out]! += element;
    size[out]! += Math.abs(element);
  });
  return { sum, size };
}

function expectNear(got: Value, want: Float64Array, allowed: (i: number) => number): void {
  expect(got.data.length).toBe(want.length);
  want.forEach((target, i) => {
    const off = Math.abs(got.data[i]! - target);
    const rounded = Math.fround(target);
    const fits = off <= allowed(i) || Object.is(got.data[i], rounded) || got.data[i] === rounded;
    if (!fits) expect.fail(`element ${i} is ${got.data[i]}, not ${target}`);
  });
}

describe('Sum and Mean', () => {
  it.each(PLACES)('Sum of float32 is within 1e-6 of float64, on $name', (place) => {
    const property = fc.property(cases('float32'), ({ x, axis, keepDims }) => {
      const got = runOne(place, tf.Sum, { x }, { axis, keepDims });
      const { sum, size } = sums({ x, axis });
      expectNear(got, sum, (i) => 1e-6 * size[i]!);
      expect(got.shape).toEqual(runOne(cpu, tf.Sum, { x }, { axis, keepDims }).shape);
    });
    fc.assert(property, { numRuns: 80 });
  });

  it.each(PLACES)('Mean is the sum over the count, on $name', (place) => {
    const element = fc.float({ min: -1e6, max: 1e6 });
    const property = fc.property(cases('float32', true, element), ({ x, axis, keepDims }) => {
      const got = runOne(place, tf.Mean, { x }, { axis, keepDims });
      const { sum, size } = sums({ x, axis });
      const count = x.data.length / sum.length;
      expectNear(
        got,
        sum.map((s) => s / count),
        (i) => (1e-6 * size[i]!) / count + 1e-44 * count,
      );
    });
    fc.assert(property, { numRuns: 60 });
  });

  // Longer than a leaf of 32768, wider and narrower than the 64 columns of a block.
  it.each([
    [[40_001], [0]],
    [[3, 40_001], [1]],
    [[33_000, 3], [0]],
    [[700, 131], [0]],
    [[2, 33_000, 2], [1]],
    [
      [5, 70, 64],
      [0, 1],
    ],
    [
      [16, 9, 5, 11],
      [1, 3],
    ],
  ])('Sum of shape %j along %j is within 1e-6', (shape, axis) => {
    const data = randomValues(tf.util.sizeFromShape(shape), 5);
    const x: Value = { dtype: 'float32', shape, data };
    const { sum, size } = sums({ x, axis });
    expectNear(runOne(native, tf.Sum, { x }, { axis }), sum, (i) => 1e-6 * size[i]!);
  });

  it.each(['int32', 'bool'] as const)('Sum of %s is exact and int32, as in tfjs', (dtype) => {
    const property = fc.property(cases(dtype), ({ x, axis, keepDims }) => {
      const attrs = { axis, keepDims };
      expectSame(runOne(native, tf.Sum, { x }, attrs), runOne(cpu, tf.Sum, { x }, attrs), 'Sum');
    });
    fc.assert(property, { numRuns: 40 });
  });
});

describe('Max, Min and the other exact reductions', () => {
  it.each(TYPES.flatMap((dtype) => [tf.Max, tf.Min].map((kernel) => [kernel, dtype] as const)))(
    '%s of %s is as in tfjs, NaN included',
    (kernel, dtype) => {
      const property = fc.property(cases(dtype, true), ({ x, axis, keepDims }) => {
        const attrs = kernel === tf.Max ? { reductionIndices: axis, keepDims } : { axis, keepDims };
        expectSame(runOne(native, kernel, { x }, attrs), runOne(cpu, kernel, { x }, attrs), kernel);
      });
      fc.assert(property, { numRuns: 60 });
    },
  );

  it.each([
    [tf.Prod, 'float32'],
    [tf.Prod, 'int32'],
    [tf.Prod, 'bool'],
    [tf.All, 'bool'],
    [tf.Any, 'bool'],
  ] as const)('%s of %s is as in tfjs', (kernel, dtype) => {
    // All of nothing is true, as TensorFlow has it; tfjs's cpu backend says false.
    const property = fc.property(cases(dtype, kernel === tf.All), ({ x, axis, keepDims }) => {
      // Another order of axes is another order of the factors in tfjs.
      const ascending = axis.map((k) => (k + x.shape.length) % x.shape.length).sort();
      const attrs = { axis: ascending, keepDims };
      expectSame(runOne(native, kernel, { x }, attrs), runOne(cpu, kernel, { x }, attrs), kernel);
    });
    fc.assert(property, { numRuns: 50 });
  });

  it.each(
    [tf.ArgMax, tf.ArgMin].flatMap((kernel) => TYPES.map((dtype) => [kernel, dtype] as const)),
  )('%s of %s finds the first, as in tfjs', (kernel, dtype) => {
    const property = fc.property(cases(dtype, true), fc.nat(), ({ x }, pick) => {
      const attrs = { axis: pick % x.shape.length };
      expectSame(runOne(native, kernel, { x }, attrs), runOne(cpu, kernel, { x }, attrs), kernel);
    });
    fc.assert(property, { numRuns: 30 });
  });

  it('Max of nothing is NaN', () => {
    const x = value('float32', [2, 0], []);
    const got = runOne(native, tf.Max, { x }, { reductionIndices: [1], keepDims: false });
    expect([...got.data]).toEqual([NaN, NaN]);
  });
});

/** Rows of logits among which some are infinite or NaN. */
const logits = anyShape(1, 3, 40).chain((shape) =>
  anyValue(
    'float32',
    shape,
    fc.oneof(
      { weight: 30, arbitrary: fc.float({ min: -30, max: 30 }) },
      { weight: 1, arbitrary: fc.constantFrom(-Infinity, NaN, 1000, -1000) },
    ),
  ),
);

/** Softmax of each row in float64. */
function softmaxRows(x: Value): { probabilities: Float64Array; logs: Float64Array } {
  const columns = x.shape.at(-1)!;
  const probabilities = new Float64Array(x.data.length);
  const logs = new Float64Array(x.data.length);
  for (let start = 0; start < x.data.length; start += columns) {
    const row = [...x.data.subarray(start, start + columns)];
    const largest = Math.max(...row);
    const sum = row.reduce((total, v) => total + Math.exp(v - largest), 0);
    row.forEach((v, i) => {
      probabilities[start + i] = Math.exp(v - largest) / sum;
      logs[start + i] = v - largest - Math.log(sum);
    });
  }
  return { probabilities, logs };
}

describe('softmax over rows', () => {
  it.each(PLACES)('Softmax is that of float64 to 1e-6, on $name', (place) => {
    const property = fc.property(logits, (x) => {
      const { probabilities } = softmaxRows(x);
      // The exponent is a rounded difference, of up to 2e-6 at 30.
      const got = runOne(place, tf.Softmax, { logits: x }, { dim: -1 });
      expectNear(got, probabilities, (i) => 4e-6 * probabilities[i]! + 1e-44);
    });
    fc.assert(property, { numRuns: 60 });
  });

  it('LogSoftmax is that of float64 to 1e-6', () => {
    const property = fc.property(logits, (x) => {
      const { logs } = softmaxRows(x);
      const got = runOne(native, tf.LogSoftmax, { logits: x }, { axis: -1 });
      expectNear(got, logs, (i) => 4e-7 * (1 + Math.abs(logs[i]!)));
    });
    fc.assert(property, { numRuns: 60 });
  });
});
