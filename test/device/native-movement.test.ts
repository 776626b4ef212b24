// Goal: kernels that move elements, or make them, put each one exactly where tfjs does.
import * as tf from '@tensorflow/tfjs-core';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { NativeDtype } from '../../tiers/device/native/native-dtype.js';
import { anyShape, anyValue, cpu, expectSame, native } from './native-kernel-run.js';
import { run, runOne, value, type Value } from './native-kernel-run.js';
import { randomValues } from './tfjs-setup.js';

const dtypes = fc.constantFrom<NativeDtype>('float32', 'int32', 'bool');

/** A tensor of any type of a shape, with attributes made from the shape. */
function withAttrs<A>(
  shapes: fc.Arbitrary<number[]>,
  attrs: (shape: number[]) => fc.Arbitrary<A>,
): fc.Arbitrary<{ x: Value; attrs: A }> {
  return fc
    .tuple(shapes, dtypes)
    .chain(([shape, dtype]) => fc.record({ x: anyValue(dtype, shape), attrs: attrs(shape) }));
}

/** The kernel has the same outputs on `native` as on `cpu`, for any such operand. */
function expectAsOnCpu(
  kernel: string,
  cases: fc.Arbitrary<{ x: Value; attrs: object }>,
  name = 'x',
): void {
  const property = fc.property(cases, ({ x, attrs }) => {
    const got = run(native, kernel, { [name]: x }, attrs);
    const want = run(cpu, kernel, { [name]: x }, attrs);
    expect(got).toHaveLength(want.length);
    got.forEach((output, i) => expectSame(output, want[i]!, kernel));
  });
  fc.assert(property, { numRuns: 80 });
}

const permutation = (shape: number[]): fc.Arbitrary<{ perm: number[] }> =>
  fc
    .shuffledSubarray(
      shape.map((_, k) => k),
      { minLength: shape.length },
    )
    .map((perm) => ({ perm }));

const range = (length: number): fc.Arbitrary<[number, number]> =>
  fc
    .tuple(fc.nat({ max: length }), fc.nat({ max: length }))
    .map(([a, b]) => [Math.min(a, b), Math.abs(a - b)]);

describe('one operand', () => {
  it('Transpose permutes, up to rank 6', () => {
    expectAsOnCpu(tf.Transpose, withAttrs(anyShape(0, 6, 4), permutation));
  });

  // Tiles of 16 with rests, the split of heads, and a rank that only merging brings down.
  it.each([
    [
      [37, 70],
      [1, 0],
    ],
    [
      [64, 128],
      [1, 0],
    ],
    [
      [3, 33, 18],
      [0, 2, 1],
    ],
    [
      [2, 17, 4, 64],
      [0, 2, 1, 3],
    ],
    [
      [2, 17, 4, 5],
      [0, 2, 3, 1],
    ],
    [
      [19, 3, 35],
      [2, 1, 0],
    ],
    [
      [2, 3, 2, 3, 2, 3],
      [5, 3, 1, 4, 2, 0],
    ],
  ])('Transpose of %j by %j is exact', (shape, perm) => {
    const data = randomValues(tf.util.sizeFromShape(shape), 3);
    const x: Value = { dtype: 'float32', shape, data };
    const got = runOne(native, tf.Transpose, { x }, { perm });
    expectSame(got, runOne(cpu, tf.Transpose, { x }, { perm }), 'Transpose');
  });

  it('Slice cuts boxes out, to the end where the size is -1', () => {
    const attrs = (shape: number[]): fc.Arbitrary<{ begin: number[]; size: number[] }> =>
      fc.tuple(...shape.map(range)).chain((ranges) =>
        fc.boolean().map((toEnd) => ({
          begin: ranges.map(([start]) => start),
          size: ranges.map(([, length]) => (toEnd ? -1 : length)),
        })),
      );
    expectAsOnCpu(tf.Slice, withAttrs(anyShape(1, 5, 6), attrs));
  });

  it('StridedSlice steps, also backwards, and drops or adds dimensions', () => {
    const step = fc.constantFrom(-3, -2, -1, 1, 2, 3);
    const mask = fc.nat({ max: 7 });
    const attrs = (shape: number[]): fc.Arbitrary<tf.StridedSliceAttrs> => {
      const edge = fc.tuple(
        ...shape.map((length) => fc.integer({ min: -length, max: length - 1 })),
      );
      return fc.record({
        begin: edge,
        end: edge,
        strides: fc.tuple(...shape.map(() => step)),
        beginMask: mask,
        endMask: mask,
        ellipsisMask: fc.constant(0),
        newAxisMask: fc.constant(0),
        shrinkAxisMask: fc.constant(0),
      });
    };
    const shapes = anyShape(1, 3, 6).map((shape) => shape.map((d) => Math.max(d, 1)));
    const property = fc.property(withAttrs(shapes, attrs), ({ x, attrs: own }) => {
      const got = runOne(native, tf.StridedSlice, { x }, own);
      // tfjs's cpu backend throws for some empty results.
      if (got.data.length > 0) {
        expectSame(got, runOne(cpu, tf.StridedSlice, { x }, own), 'StridedSlice');
        return;
      }
      const { begin, end, strides, beginMask, endMask } = own;
      const info = tf.slice_util.sliceInfo(
        [...x.shape],
        begin,
        end,
        strides,
        beginMask,
        endMask,
        0,
        0,
        own.shrinkAxisMask,
      );
      expect(got.shape).toEqual(info.finalShape);
      expect(tf.util.sizeFromShape(info.finalShape)).toBe(0);
    });
    fc.assert(property, { numRuns: 150 });
  });

  it('Reverse turns any dimensions round', () => {
    const attrs = (shape: number[]): fc.Arbitrary<{ dims: number[] }> =>
      fc.subarray(shape.map((_, k) => k)).map((dims) => ({ dims }));
    // tfjs reverses every dimension where none is named only at rank 0.
    expectAsOnCpu(tf.Reverse, withAttrs(anyShape(1, 4, 6), attrs));
  });

  it('PadV2 surrounds with the constant', () => {
    const attrs = (shape: number[]): fc.Arbitrary<object> =>
      fc.record({
        paddings: fc.tuple(...shape.map(() => fc.tuple(fc.nat({ max: 3 }), fc.nat({ max: 3 })))),
        constantValue: fc.constantFrom(0, 1, 7),
      });
    expectAsOnCpu(tf.PadV2, withAttrs(anyShape(1, 4), attrs));
  });

  it('Tile repeats along each dimension', () => {
    const attrs = (shape: number[]): fc.Arbitrary<object> =>
      fc.tuple(...shape.map(() => fc.integer({ min: 1, max: 3 }))).map((reps) => ({ reps }));
    expectAsOnCpu(tf.Tile, withAttrs(anyShape(1, 5, 4), attrs));
  });

  it('SplitV cuts along an axis into given sizes, or equal ones', () => {
    const attrs = (shape: number[]): fc.Arbitrary<object> =>
      fc.nat({ max: shape.length - 1 }).chain((axis) => {
        const first = fc.nat({ max: shape[axis]! });
        const sizes = first.map((size) => [size, shape[axis]! - size]);
        return fc
          .oneof(sizes, fc.constant(1), fc.constant([shape[axis]!]))
          .map((numOrSizeSplits) => ({ axis, numOrSizeSplits }));
      });
    expectAsOnCpu(tf.SplitV, withAttrs(anyShape(1, 4, 6), attrs));
  });

  it('Unpack takes the slices along an axis', () => {
    const attrs = (shape: number[]): fc.Arbitrary<object> =>
      fc.integer({ min: -shape.length, max: shape.length - 1 }).map((axis) => ({ axis }));
    expectAsOnCpu(tf.Unpack, withAttrs(anyShape(1, 4), attrs), 'value');
  });

  it('ExpandDims, Reshape and Identity keep the elements', () => {
    const dim = (shape: number[]): fc.Arbitrary<object> =>
      fc.integer({ min: -shape.length - 1, max: shape.length }).map((k) => ({ dim: k }));
    expectAsOnCpu(tf.ExpandDims, withAttrs(anyShape(0, 3), dim), 'input');
    const flat = (shape: number[]): fc.Arbitrary<object> =>
      fc.constant({ shape: [tf.util.sizeFromShape(shape)] });
    expectAsOnCpu(tf.Reshape, withAttrs(anyShape(0, 3), flat));
    expectAsOnCpu(
      tf.Identity,
      withAttrs(anyShape(0, 3), () => fc.constant({})),
    );
  });
});

describe('several operands', () => {
  it('Concat joins along an axis, and leaves empty ones out', () => {
    const cases = fc.tuple(anyShape(1, 4), dtypes, fc.nat()).chain(([shape, dtype, pick]) => {
      const axis = pick % shape.length;
      const part = fc.nat({ max: 4 }).chain((size) =>
        anyValue(
          dtype,
          shape.map((d, k) => (k === axis ? size : d)),
        ),
      );
      return fc.record({
        tensors: fc.array(part, { minLength: 1, maxLength: 4 }),
        axis: fc.constantFrom(axis, axis - shape.length),
      });
    });
    const property = fc.property(cases, ({ tensors, axis }) => {
      const got = runOne(native, tf.Concat, tensors, { axis });
      expectSame(got, runOne(cpu, tf.Concat, tensors, { axis }), 'Concat');
    });
    fc.assert(property, { numRuns: 80 });
  });

  it('Pack stacks along a new axis', () => {
    const cases = fc.tuple(anyShape(0, 3), dtypes, fc.nat()).chain(([shape, dtype, pick]) =>
      fc.record({
        tensors: fc.array(anyValue(dtype, shape), { minLength: 1, maxLength: 4 }),
        axis: fc.constant(pick % (shape.length + 1)),
      }),
    );
    const property = fc.property(cases, ({ tensors, axis }) => {
      const got = runOne(native, tf.Pack, tensors, { axis });
      expectSame(got, runOne(cpu, tf.Pack, tensors, { axis }), 'Pack');
    });
    fc.assert(property, { numRuns: 50 });
  });

  it('GatherV2 takes rows by index along any axis, in batches', () => {
    const cases = fc.tuple(anyShape(1, 4), dtypes, fc.nat(), fc.boolean()).chain((drawn) => {
      const [dims, dtype, pick, batched] = drawn;
      const shape = dims.map((d) => Math.max(d, 1));
      const axis = pick % shape.length;
      const batchDims = batched && axis > 0 ? 1 : 0;
      const count = fc.integer({ min: 0, max: 6 });
      const indices = count.chain((n) =>
        anyValue(
          'int32',
          batchDims === 1 ? [shape[0]!, n] : [n],
          fc.nat({ max: shape[axis]! - 1 }),
        ),
      );
      return fc.record({
        x: anyValue(dtype, shape),
        indices,
        attrs: fc.constant({ axis, batchDims }),
      });
    });
    const property = fc.property(cases, ({ x, indices, attrs }) => {
      const got = runOne(native, tf.GatherV2, { x, indices }, attrs);
      expectSame(got, runOne(cpu, tf.GatherV2, { x, indices }, attrs), 'GatherV2');
    });
    fc.assert(property, { numRuns: 80 });
  });

  it('an index that no row has gives NaN, and touches no other memory', () => {
    const x = value('float32', [2, 2], [1, 2, 3, 4]);
    const indices = value('int32', [4], [1, 2, -1, 0]);
    const got = runOne(native, tf.GatherV2, { x, indices }, { axis: 0, batchDims: 0 });
    expect([...got.data]).toEqual([3, 4, NaN, NaN, NaN, NaN, 1, 2]);
  });

  it('UnsortedSegmentSum adds the rows of each id, and leaves unknown ids out', () => {
    const cases = fc.tuple(fc.nat({ max: 30 }), anyShape(0, 2, 20)).chain(([rows, rowShape]) =>
      fc.record({
        x: anyValue('float32', [rows, ...rowShape], fc.float({ min: -100, max: 100, noNaN: true })),
        segmentIds: anyValue('int32', [rows], fc.integer({ min: -2, max: 7 })),
        numSegments: fc.constantFrom(1, 5, 9),
      }),
    );
    const property = fc.property(cases, ({ x, segmentIds, numSegments }) => {
      const got = runOne(native, tf.UnsortedSegmentSum, { x, segmentIds }, { numSegments });
      const columns = tf.util.sizeFromShape(x.shape.slice(1));
      expect(got.shape).toEqual([numSegments, ...x.shape.slice(1)]);
      got.data.forEach((element, i) => {
        let sum = 0;
        let size = 0;
        segmentIds.data.forEach((id, row) => {
          if (id !== Math.floor(i / columns)) return;
          sum += x.data[row * columns + (i % columns)]!;
          size += Math.abs(x.data[row * columns + (i % columns)]!);
        });
        expect(Math.abs(element - sum)).toBeLessThanOrEqual(1e-6 * size);
      });
    });
    fc.assert(property, { numRuns: 60 });
  });
});

describe('tensors from nothing', () => {
  it('OneHot has onValue at the index, and only there', () => {
    const cases = fc.record({
      indices: anyShape(0, 2).chain((s) => anyValue('int32', s, fc.integer({ min: -1, max: 6 }))),
      attrs: fc.record({
        depth: fc.integer({ min: 1, max: 6 }),
        onValue: fc.constantFrom(1, 2),
        offValue: fc.constantFrom(0, 3),
        dtype: fc.constantFrom('float32', 'int32'),
      }),
    });
    const property = fc.property(cases, ({ indices, attrs }) => {
      const got = runOne(native, tf.OneHot, { indices }, attrs);
      const want = runOne(cpu, tf.OneHot, { indices }, attrs);
      // tfjs keeps a Float32Array whatever the type says.
      expect({ ...got, data: [...got.data] }).toEqual({ ...want, data: [...want.data] });
    });
    fc.assert(property, { numRuns: 50 });
  });

  it('Range steps as tfjs does, roundings included', () => {
    const cases = fc.record({
      start: fc.integer({ min: -20, max: 20 }),
      stop: fc.integer({ min: -20, max: 20 }),
      step: fc.constantFrom(1, 2, 0.1, 3.7, -1, -0.3),
      dtype: fc.constantFrom('float32', 'int32'),
    });
    const property = fc.property(cases, (attrs) => {
      const got = runOne(native, tf.Range, {}, attrs);
      expectSame(got, runOne(cpu, tf.Range, {}, attrs), 'Range');
    });
    fc.assert(property, { numRuns: 60 });
  });

  it('Fill, OnesLike and ZerosLike fill', () => {
    const fill = runOne(native, tf.Fill, {}, { shape: [2, 3], value: 2.5, dtype: 'float32' });
    expectSame(fill, value('float32', [2, 3], [2.5, 2.5, 2.5, 2.5, 2.5, 2.5]), 'Fill');
    const property = fc.property(
      dtypes.chain((dtype) => anyShape(0, 3).chain((shape) => anyValue(dtype, shape))),
      (x) => {
        for (const kernel of [tf.OnesLike, tf.ZerosLike]) {
          expectSame(runOne(native, kernel, { x }), runOne(cpu, kernel, { x }), kernel);
        }
      },
    );
    fc.assert(property, { numRuns: 20 });
  });
});
