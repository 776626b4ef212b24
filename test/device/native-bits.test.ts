// Goal: every kernel gives the same bits on each instruction set and for 1 and 2 threads.
import * as tf from '@tensorflow/tfjs-core';
import { afterAll, describe, expect, it } from 'vitest';
import type { NativeDtype } from '../../tiers/device/native/native-dtype.js';
import { native as loadAddon } from '../../tiers/native/binding.js';
import { nativePlace, run, type Value } from './native-kernel-run.js';
import { randomValues } from './tfjs-setup.js';

const addon = loadAddon()!;
const best = addon.isa();
afterAll(() => addon.setIsa(best));

const places = [nativePlace(1), nativePlace(2)];

/** Long enough that two threads share it, and no multiple of sixteen. */
const LENGTH = 40_001;

/** All exponents and signs, NaN and infinities among them. */
const patterns = new Float32Array(
  new Uint32Array(LENGTH).map((_, i) => Math.imul(i, 61_359) + 0x3f800000).buffer,
);
const near = randomValues(LENGTH, 11).map((v) => v * 20);

function of(dtype: NativeDtype, shape: number[], seed: number): Value {
  const length = tf.util.sizeFromShape(shape);
  const values = randomValues(length, seed);
  if (dtype === 'float32') return { dtype, shape, data: values };
  if (dtype === 'bool')
    return { dtype, shape, data: Uint8Array.from(values, (v) => Number(v > 0)) };
  return { dtype, shape, data: Int32Array.from(values, (v) => v * 2 ** 31) };
}

/** Bytes of all outputs under each instruction set and thread count; NaN is one NaN. */
function expectOneResult(
  kernel: string,
  inputs: Parameters<typeof run>[2],
  attrs: object = {},
): void {
  let first: { name: string; bits: number[][] } | undefined;
  for (const isa of addon.isaList()) {
    addon.setIsa(isa);
    places.forEach((place, i) => {
      const bits = run(place, kernel, inputs, attrs).map(({ data }) => bitsOf(data));
      const name = `${isa}, ${i + 1} threads`;
      first ??= { name, bits };
      bits.forEach((output, k) => {
        const at = output.findIndex((word, j) => word !== first!.bits[k]![j]);
        if (at >= 0)
          expect.fail(`${kernel}: output ${k} differs at ${at}: ${name}, ${first!.name}`);
      });
    });
  }
}

function bitsOf(data: Value['data']): number[] {
  if (!(data instanceof Float32Array)) return [...data];
  const words = new Uint32Array(data.buffer, data.byteOffset, data.length);
  return Array.from(words, (word, i) => (Number.isNaN(data[i]) ? 0x7fc00000 : word));
}

const UNARY = [
  [tf.Abs, tf.Neg, tf.Square, tf.Sqrt, tf.Rsqrt, tf.Reciprocal, tf.Floor, tf.Ceil, tf.Round],
  [tf.Exp, tf.Expm1, tf.Log, tf.Log1p, tf.Sin, tf.Cos, tf.Tanh, tf.Sigmoid, tf.Softplus, tf.Erf],
  [tf.Elu, tf.Relu, tf.Relu6, tf.Sign, tf.IsNan, tf.IsInf, tf.IsFinite],
].flat();

const BINARY = [
  [tf.Add, tf.Sub, tf.Multiply, tf.RealDiv, tf.Maximum, tf.Minimum, tf.Pow, tf.Mod, tf.FloorDiv],
  [tf.SquaredDifference, tf.Equal, tf.NotEqual, tf.Less, tf.LessEqual, tf.Greater, tf.GreaterEqual],
].flat();

describe('one set of bits', () => {
  it.each(UNARY)('%s', (kernel) => {
    expectOneResult(kernel, { x: { dtype: 'float32', shape: [LENGTH], data: patterns } });
    expectOneResult(kernel, { x: { dtype: 'float32', shape: [LENGTH], data: near } });
  });

  it.each(BINARY)('%s', (kernel) => {
    const a: Value = { dtype: 'float32', shape: [LENGTH], data: patterns };
    const b: Value = { dtype: 'float32', shape: [LENGTH], data: near };
    expectOneResult(kernel, { a, b });
    for (const dtype of ['float32', 'int32', 'bool'] as const) {
      const rows = of(dtype, [517, 67], 1);
      expectOneResult(kernel, { a: rows, b: of(dtype, [67], 2) });
      expectOneResult(kernel, { a: of(dtype, [517, 1], 3), b: rows });
    }
  });

  it('Cast, AddN, Select and LogicalAnd', () => {
    const x: Value = { dtype: 'float32', shape: [LENGTH], data: patterns };
    expectOneResult(tf.Cast, { x }, { dtype: 'int32' });
    expectOneResult(tf.Cast, { x }, { dtype: 'bool' });
    expectOneResult(tf.Cast, { x: of('int32', [LENGTH], 4) }, { dtype: 'float32' });
    const [t, e] = [of('float32', [LENGTH], 5), of('float32', [LENGTH], 6)];
    expectOneResult(tf.AddN, [t, e, x]);
    const condition = of('bool', [LENGTH], 7);
    expectOneResult(tf.Select, { condition, t, e });
    expectOneResult(tf.LogicalAnd, { a: condition, b: of('bool', [LENGTH], 8) });
  });

  it.each([
    [[LENGTH], [0]],
    [[LENGTH, 2], [0]],
    [[613, 131], [0]],
    [[613, 131], [1]],
    [[7, 91, 70], [1]],
    [
      [7, 91, 70],
      [0, 2],
    ],
  ])('Sum, Mean, Max and Min of %j along %j', (shape, axis) => {
    const x = of('float32', shape, 9);
    expectOneResult(tf.Sum, { x }, { axis, keepDims: false });
    expectOneResult(tf.Mean, { x }, { axis, keepDims: false });
    expectOneResult(tf.Max, { x }, { reductionIndices: axis, keepDims: false });
    expectOneResult(tf.Min, { x }, { axis, keepDims: false });
    expectOneResult(tf.Sum, { x: of('int32', shape, 10) }, { axis, keepDims: false });
    expectOneResult(tf.Prod, { x }, { axis, keepDims: false });
  });

  it('Softmax and LogSoftmax', () => {
    const logits = of('float32', [301, 233], 12);
    expectOneResult(tf.Softmax, { logits }, { dim: -1 });
    expectOneResult(tf.LogSoftmax, { logits }, { axis: -1 });
  });

  it('kernels that move elements', () => {
    const x = of('float32', [67, 9, 83], 13);
    expectOneResult(tf.Transpose, { x }, { perm: [2, 1, 0] });
    expectOneResult(tf.Transpose, { x }, { perm: [1, 0, 2] });
    expectOneResult(tf.Tile, { x }, { reps: [1, 2, 3] });
    expectOneResult(tf.SplitV, { x }, { axis: 2, numOrSizeSplits: [40, 43] });
    expectOneResult(tf.Concat, [x, of('float32', [67, 9, 5], 14)], { axis: 2 });
    const ids = Int32Array.from(randomValues(600, 15), (v) => Math.floor(v * 50 + 50));
    const indices: Value = { dtype: 'int32', shape: [600], data: ids };
    const rows = of('float32', [100, 131], 16);
    expectOneResult(tf.GatherV2, { x: rows, indices }, { axis: 0, batchDims: 0 });
    const grads = of('float32', [600, 131], 17);
    expectOneResult(tf.UnsortedSegmentSum, { x: grads, segmentIds: indices }, { numSegments: 100 });
    expectOneResult(
      tf.OneHot,
      { indices },
      { depth: 101, onValue: 1, offValue: 0, dtype: 'float32' },
    );
  });
});
