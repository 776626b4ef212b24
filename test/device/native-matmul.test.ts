// Goal: matrix products of the native device are fma chains, the same bits everywhere, near float64.
import * as tf from '@tensorflow/tfjs-core';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { withBackend } from '../../tiers/device/backend-scope.js';
import { registerFallbacks } from '../../tiers/device/native/cpu-fallback.js';
import { native as addon } from '../../tiers/native/binding.js';
import { portableKernels } from '../../tiers/native/portable/kernels.js';
import { chainGemm, doubleGemm, runGemm, UNTOUCHED } from './gemm-reference.js';
import type { Operand, Place, Product } from './gemm-reference.js';
import {
  anyInt,
  anyValue,
  cpu,
  expectSame,
  native,
  nativePlace,
  runOne,
  value,
} from './native-kernel-run.js';
import type { Value } from './native-kernel-run.js';
import { bitsOf, randomValues } from './tfjs-setup.js';

const ISAS = addon()!.isaList();
const BEST: Place = { isa: ISAS[0]!, threads: 1 };
/** Every instruction set, on one thread and on several. */
const PLACES: Place[] = ISAS.flatMap((isa) => [1, 2, 3].map((threads) => ({ isa, threads })));

/** Which of a product's operands are transposed, shared by the batch, bf16, or loosely stored. */
interface Form {
  readonly transposed: readonly [boolean, boolean];
  readonly shared: readonly [boolean, boolean];
  readonly bf16: readonly [boolean, boolean];
  readonly slack: readonly [number, number, number];
  readonly bias: boolean;
  readonly relu: boolean;
}

const PLAIN: Form = {
  transposed: [false, false],
  shared: [false, false],
  bf16: [false, false],
  slack: [0, 0, 0],
  bias: false,
  relu: false,
};

const pair = fc.tuple(fc.boolean(), fc.boolean());
const slack = fc.constantFrom(0, 0, 1, 7);
const anyForm: fc.Arbitrary<Form> = fc.record({
  transposed: pair,
  shared: pair,
  bf16: fc.constantFrom<[boolean, boolean]>([false, false], [false, true], [true, false]),
  slack: fc.tuple(slack, slack, slack),
  bias: fc.boolean(),
  relu: fc.boolean(),
});

const dims = (max: number) =>
  fc.oneof(
    fc.integer({ min: 0, max: 3 }),
    fc.integer({ min: 1, max }),
    fc.integer({ min: 1, max }),
  );

interface Sizes {
  readonly m: number;
  readonly n: number;
  readonly k: number;
  readonly batch: number;
}

const anySizes = (max: number): fc.Arbitrary<Sizes> =>
  fc.record({ m: dims(max), n: dims(max), k: dims(max), batch: fc.integer({ min: 1, max: 3 }) });

/** A product of random values; what lies between stored rows is NaN. */
function makeProduct({ m, n, k, batch }: Sizes, form: Form, seed = 1): Product {
  const operand = (rows: number, columns: number, index: 0 | 1): Operand => {
    const transposed = form.transposed[index];
    const [stored, length] = transposed ? [columns, rows] : [rows, columns];
    const leading = length + form.slack[index];
    const matrices = form.shared[index] ? 1 : batch;
    const values = randomValues(matrices * stored * leading, seed + index);
    for (let i = 0; i < values.length; i++) if (i % leading >= length) values[i] = NaN;
    const batchStride = form.shared[index] ? 0 : stored * leading;
    if (!form.bf16[index]) return { values, transposed, leading, batchStride };
    const halves = new Uint16Array(values.length);
    portableKernels.f32ToBf16(values, halves);
    return { values: halves, transposed, leading, batchStride };
  };
  return {
    ...{ m, n, k, batch },
    a: operand(m, k, 0),
    b: operand(k, n, 1),
    ...(form.bias ? { bias: randomValues(n, seed + 2) } : {}),
    relu: form.relu,
    leadingC: n + form.slack[2],
  };
}

/** Rows of C without what lies between them, which must be untouched, as must what follows. */
function compact(product: Product, c: Float32Array): Float32Array {
  const { m, n, batch, leadingC = n } = product;
  const bits = bitsOf(c);
  const rows = batch * m;
  for (let i = 0; i < c.length; i++) {
    const isElement = i < rows * leadingC && i % leadingC < n;
    if (!isElement) expect(bits[i], `memory beside C at ${i}`).toBe(UNTOUCHED);
  }
  return Float32Array.from(
    { length: rows * n },
    (_, i) => c[Math.floor(i / n) * leadingC + (i % n)]!,
  );
}

/** Fails unless the bits are the same; `toEqual` walks a large array for seconds. */
function expectSameBits(got: Float32Array, want: Float32Array, what: string): void {
  const bytes = ({ buffer, byteOffset, byteLength }: Float32Array) =>
    Buffer.from(buffer, byteOffset, byteLength);
  if (bytes(got).equals(bytes(want))) return;
  const [gotBits, wantBits] = [bitsOf(got), bitsOf(want)];
  const at = wantBits.findIndex((bits, i) => bits !== gotBits[i]);
  expect.fail(`${what}: element ${at} of ${want.length} is ${got[at]}, not ${want[at]}`);
}

function expectNearDouble(product: Product, c: Float32Array): void {
  const { sums, sizes } = doubleGemm(product);
  const relu = product.relu === true;
  sums.forEach((sum, i) => {
    const want = relu ? Math.max(0, sum) : sum;
    if (!(Math.abs(c[i]! - want) <= 1e-6 * sizes[i]!)) {
      expect.fail(`element ${i} is ${c[i]}, in float64 ${want}, terms of ${sizes[i]}`);
    }
  });
}

describe('the product kernel', () => {
  it('gives the bits of one fma chain per element, in every form, on every instruction set', () => {
    fc.assert(
      fc.property(anySizes(20), anyForm, fc.nat(1000), (sizes, form, seed) => {
        const product = makeProduct(sizes, form, seed);
        const want = chainGemm(product);
        for (const isa of ISAS) {
          const c = compact(product, runGemm(product, { isa, threads: 1 }));
          expectSameBits(c, want, isa);
        }
      }),
      { numRuns: 60 },
    );
  });

  it('is within 1e-6 of float64, relative to the terms, and equal on all threads and sets', () => {
    fc.assert(
      fc.property(anySizes(150), anyForm, fc.nat(1000), (sizes, form, seed) => {
        const product = makeProduct(sizes, form, seed);
        const raw = runGemm(product, BEST);
        expectNearDouble(product, compact(product, raw));
        const few = sizes.m * sizes.n * sizes.k * sizes.batch < 2e5;
        for (const place of PLACES.filter(({ isa }) => few || isa !== 'portable')) {
          expectSameBits(runGemm(product, place), raw, JSON.stringify(place));
        }
      }),
      { numRuns: 60 },
    );
  });

  const NN = [false, false] as const;
  const NT = [false, true] as const;
  const TN = [true, false] as const;
  const TT = [true, true] as const;
  it.each([
    // Rows in two chunks, and k in two spans of packed rows.
    { m: 1030, n: 130, k: 40, batch: 1, transposed: NN },
    { m: 900, n: 132, k: 1300, batch: 1, transposed: TN },
    // Batch elements in groups.
    { m: 200, n: 140, k: 450, batch: 13, transposed: NN },
    // Long chains, over several blocks of k.
    { m: 30, n: 40, k: 6000, batch: 1, transposed: NT },
    { m: 3, n: 5, k: 50_000, batch: 1, transposed: TT },
    // One token, few tokens and one column against a wide weight.
    { m: 1, n: 2000, k: 300, batch: 1, transposed: NN },
    { m: 1, n: 2000, k: 300, batch: 1, transposed: NT },
    { m: 16, n: 1030, k: 1100, batch: 1, transposed: NN },
    { m: 16, n: 1030, k: 1100, batch: 1, transposed: NT },
    { m: 1030, n: 9, k: 1100, batch: 1, transposed: TN },
    { m: 1500, n: 1, k: 700, batch: 1, transposed: NN },
    { m: 1500, n: 1, k: 700, batch: 1, transposed: TT },
  ])('holds where blocks begin and end: $m × $n × $k, $batch times', ({ transposed, ...sizes }) => {
    for (const bf16 of [NN, NT] as const) {
      const product = makeProduct(sizes, { ...PLAIN, transposed, bf16 });
      const raw = runGemm(product, BEST);
      // The float64 reference reads each element through two functions: a part of C is enough.
      const part = narrowed(product, Math.ceil(4e6 / (sizes.n * sizes.k)));
      const rows = Float32Array.from({ length: part.m * sizes.n }, (_, i) => raw[i]!);
      expectNearDouble(part, rows);
      expectSameBits(runGemm(part, BEST).slice(0, rows.length), rows, 'rows alone');
      for (const place of PLACES.filter(({ isa }) => isa !== 'portable')) {
        expectSameBits(runGemm(product, place), raw, JSON.stringify(place));
      }
    }
  });

  /** The first rows of the first product, over the same memory. */
  function narrowed(product: Product, rows: number): Product {
    return { ...product, m: Math.min(product.m, rows), batch: 1 };
  }

  it('gives a batch the bits of its elements alone', () => {
    fc.assert(
      fc.property(anySizes(60), pair, pair, fc.nat(1000), (sizes, transposed, shared, seed) => {
        const product = makeProduct(sizes, { ...PLAIN, transposed, shared }, seed);
        const whole = runGemm(product, { ...BEST, threads: 2 });
        const { m, n, batch, a, b } = product;
        for (let element = 0; element < batch; element++) {
          const from = (x: Operand): Operand => ({
            ...x,
            values: x.values.slice(element * x.batchStride),
          });
          const alone = runGemm({ ...product, batch: 1, a: from(a), b: from(b) }, BEST);
          const own = whole.slice(element * m * n, (element + 1) * m * n);
          expectSameBits(alone.slice(0, m * n), own, `element ${element}`);
        }
      }),
      { numRuns: 30 },
    );
  });

  it('starts its chains at +0 and keeps subnormal numbers', () => {
    const one = (a: number[], b: number[]): number => {
      const k = a.length;
      const row = { transposed: false, leading: k, batchStride: 0 };
      const column = { transposed: false, leading: 1, batchStride: 0 };
      const product: Product = {
        ...{ m: 1, n: 1, k, batch: 1 },
        a: { ...row, values: Float32Array.from(a) },
        b: { ...column, values: Float32Array.from(b) },
      };
      const results = PLACES.map((place) => runGemm(product, place)[0]!);
      for (const result of results) expect(result).toBe(results[0]);
      return results[0]!;
    };
    expect(one([-1], [0])).toBe(0);
    expect(one([], [])).toBe(0);
    expect(one([1e-20, 2 ** -149], [1e-20, 1])).toBe(Math.fround(1e-40) + 2 ** -149);
    // A product that float32 does not hold, cancelled before it is rounded.
    expect(one([-3e38, 2 ** 100], [1, 2 ** 28])).toBe(Math.fround(2 ** 128 - Math.fround(3e38)));
  });

  it('passes NaN and infinities on to the elements that they belong to, and to no other', () => {
    fc.assert(
      fc.property(
        anySizes(40),
        pair,
        fc.constantFrom(NaN, Infinity, -Infinity),
        fc.nat(1000),
        (sizes, transposed, special, seed) => {
          fc.pre(sizes.m * sizes.k > 0);
          const product = makeProduct(sizes, { ...PLAIN, transposed }, seed);
          product.a.values[seed % product.a.values.length] = special;
          const want = chainGemm(product);
          for (const isa of ISAS) {
            const got = runGemm(product, { isa, threads: 2 });
            want.forEach((number, i) => {
              if (!Object.is(got[i], number)) expect.fail(`${isa}: ${got[i]}, not ${number}`);
            });
          }
        },
      ),
      { numRuns: 40 },
    );
  });
});

describe('matMul on the native backend', () => {
  /** Shapes of a and b with batch dimensions that broadcast. */
  const anyShapes = fc
    .record({
      sizes: fc.tuple(...[1, 2, 3].map(() => fc.integer({ min: 0, max: 6 }))),
      batch: fc.array(fc.integer({ min: 1, max: 3 }), { maxLength: 3 }),
      ones: fc.array(fc.constantFrom('a', 'b', 'neither'), { minLength: 3, maxLength: 3 }),
      missing: fc.tuple(fc.constantFrom('a', 'b', 'neither'), fc.nat(3)),
      transposeA: fc.boolean(),
      transposeB: fc.boolean(),
    })
    .map(({ sizes: [m, n, k], batch, ones, missing, transposeA, transposeB }) => {
      const shapeOf = (which: 'a' | 'b', matrix: number[]): number[] => {
        const own = batch.map((length, i) => (ones[i] === which ? 1 : length));
        return [...(missing[0] === which ? own.slice(missing[1]) : own), ...matrix];
      };
      return {
        a: shapeOf('a', transposeA ? [k!, m!] : [m!, k!]),
        b: shapeOf('b', transposeB ? [n!, k!] : [k!, n!]),
        transposeA,
        transposeB,
        n: n!,
      };
    });

  /** Broadcast product by the definition, one pair of matrices at a time. */
  function expected(a: Value, b: Value, transposeA: boolean, transposeB: boolean): Value {
    const [aBatch, bBatch] = [a.shape.slice(0, -2), b.shape.slice(0, -2)];
    const batch = tf.backend_util.assertAndGetBroadcastShape(aBatch, bBatch);
    const [aRows, aColumns] = a.shape.slice(-2) as [number, number];
    const [bRows, bColumns] = b.shape.slice(-2) as [number, number];
    const [m, k] = transposeA ? [aColumns, aRows] : [aRows, aColumns];
    const n = transposeB ? bRows : bColumns;
    const matrixAt = (x: Value, own: number[], at: number[]): number =>
      own.reduce((sum, length, i) => {
        const index = length === 1 ? 0 : at[i + batch.length - own.length]!;
        return sum * length + index;
      }, 0);
    const count = tf.util.sizeFromShape(batch);
    const data = Array.from({ length: count }, (_, element) => {
      const at = tf.util.indexToLoc(element, batch.length, tf.util.computeStrides(batch));
      const part = (x: Value, own: number[], size: number) =>
        (x.data as Float32Array).slice(matrixAt(x, own, at) * size).slice(0, size);
      const layout = { leading: 0, batchStride: 0 };
      return chainGemm({
        ...{ m, n, k, batch: 1 },
        a: { ...layout, leading: aColumns, values: part(a, aBatch, m * k), transposed: transposeA },
        b: { ...layout, leading: bColumns, values: part(b, bBatch, k * n), transposed: transposeB },
      });
    });
    return value(
      'float32',
      [...batch, m, n],
      data.flatMap((matrix) => [...matrix]),
    );
  }

  const random = (shape: readonly number[], seed: number): Value =>
    value('float32', shape, [...randomValues(tf.util.sizeFromShape([...shape]), seed)]);

  it('broadcasts batches of any rank, with the bits of separate products', () => {
    fc.assert(
      fc.property(anyShapes, fc.nat(1000), ({ a, b, transposeA, transposeB }, seed) => {
        const inputs = { a: random(a, seed), b: random(b, seed + 1) };
        const got = runOne(native, tf.BatchMatMul, inputs, { transposeA, transposeB });
        const want = expected(inputs.a, inputs.b, transposeA, transposeB);
        expectSame(got, want, JSON.stringify({ a, b, transposeA, transposeB }));
      }),
      { numRuns: 150 },
    );
  });

  it('adds a bias and applies an activation as separate kernels would', () => {
    const activations = ['linear', 'relu', 'relu6', 'elu', 'sigmoid', 'leakyrelu'] as const;
    const kernels = {
      ...{ relu: tf.Relu, relu6: tf.Relu6, elu: tf.Elu },
      ...{ sigmoid: tf.Sigmoid, leakyrelu: tf.LeakyRelu },
    };
    fc.assert(
      fc.property(
        anyShapes,
        fc.constantFrom(...activations),
        fc.constantFrom('none', 'column', 'scalar', 'row'),
        fc.nat(1000),
        ({ a, b, transposeA, transposeB, n }, activation, biasKind, seed) => {
          const operands = { a: random(a, seed), b: random(b, seed + 1) };
          const product = runOne(native, tf.BatchMatMul, operands, { transposeA, transposeB });
          const rows = product.shape.at(-2)!;
          const biasShape = { none: [], column: [n], scalar: [1], row: [rows, 1] }[biasKind];
          const bias = biasKind === 'none' ? undefined : random(biasShape, seed + 2);
          let want = bias ? runOne(native, tf.Add, { a: product, b: bias }) : product;
          if (activation !== 'linear') {
            want = runOne(native, kernels[activation], { x: want }, { alpha: 0.3 });
          }
          const inputs = bias ? { ...operands, bias } : operands;
          const attrs = { transposeA, transposeB, activation, leakyreluAlpha: 0.3 };
          const got = runOne(native, tf._FusedMatMul, inputs, attrs);
          expectSame(got, want, `${activation}, bias ${biasKind}`);
        },
      ),
      { numRuns: 100 },
    );
  });

  it('applies prelu, which runs on the cpu backend, with its weights', () => {
    registerFallbacks();
    const { name, backend } = nativePlace(1);
    const values = withBackend(name, backend, () =>
      tf.tidy(() => {
        const inputs = {
          a: tf.tensor2d([1, 2, 3, -4], [2, 2]),
          b: tf.tensor2d([1, 0, 0, 1], [2, 2]),
          preluActivationWeights: tf.tensor1d([0.5, 0.25]),
        };
        const attrs = { transposeA: false, transposeB: false, activation: 'prelu' };
        return [...tf.engine().runKernel<tf.Tensor>(tf._FusedMatMul, inputs, attrs).dataSync()];
      }),
    );
    expect(values).toEqual([1, 2, 3, -1]);
  });

  it('multiplies int32 modulo 2^32 and agrees with the cpu backend where that is exact', () => {
    const cases = anyShapes.chain(({ a, b, ...attrs }) =>
      fc.record({
        small: fc.tuple(
          anyValue('int32', a, fc.integer({ min: -1000, max: 1000 })),
          anyValue('int32', b, fc.integer({ min: -1000, max: 1000 })),
        ),
        large: fc.tuple(anyValue('int32', a, anyInt), anyValue('int32', b, anyInt)),
        attrs: fc.constant(attrs),
      }),
    );
    fc.assert(
      fc.property(cases, ({ small: [a, b], large, attrs }) => {
        // The cpu backend pairs batch elements by remainder: right only for one batch dimension.
        if (a.shape.length <= 3 && b.shape.length <= 3) {
          const [got, want] = [native, cpu].map((at) =>
            runOne(at, tf.BatchMatMul, { a, b }, attrs),
          );
          expectSame(got!, want!, 'int32');
        }
        const [x, y] = large;
        if (x.shape.length !== 2 || y.shape.length !== 2) return;
        const got = runOne(native, tf.BatchMatMul, { a: x, b: y }, attrs);
        expectSame(got, wrapped(x, y, attrs), 'int32 that wraps');
      }),
      { numRuns: 100 },
    );
  });

  /** The product of two matrices by arithmetic modulo 2^32. */
  function wrapped(
    x: Value,
    y: Value,
    { transposeA, transposeB }: { transposeA: boolean; transposeB: boolean },
  ): Value {
    const at = ({ data, shape }: Value, i: number, j: number, transposed: boolean): number =>
      data[transposed ? j * shape[1]! + i : i * shape[1]! + j]!;
    const [m, k] = transposeA ? [x.shape[1]!, x.shape[0]!] : [x.shape[0]!, x.shape[1]!];
    const n = y.shape[transposeB ? 0 : 1]!;
    const data = Array.from({ length: m * n }, (_, index) => {
      let sum = 0;
      for (let step = 0; step < k; step++) {
        const left = at(x, Math.floor(index / n), step, transposeA);
        sum = (sum + Math.imul(left, at(y, step, index % n, transposeB))) | 0;
      }
      return sum;
    });
    return value('int32', [m, n], data);
  }

  it('refuses matrices whose inner dimensions differ', () => {
    const inputs = { a: random([2, 3], 1), b: random([4, 2], 2) };
    const attrs = { transposeA: false, transposeB: false };
    expect(() => runOne(native, tf.BatchMatMul, inputs, attrs)).toThrow(/inner dimensions/);
  });
});
