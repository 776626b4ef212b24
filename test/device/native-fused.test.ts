// Goal: each fused kernel computes its formula in float64, with one set of bits on every instruction
// set and number of threads.
import * as tf from '@tensorflow/tfjs-core';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { FUSED, type AttentionAttrs } from '../../tiers/device/native/kernels/fused-names.js';
import { registerNativeKernels } from '../../tiers/device/native/kernels/index.js';
import { native } from '../../tiers/native/binding.js';
import { relativeError } from '../model/fixture-model.js';
import { attentionReference, planesOf, positions } from './attention-reference.js';
import { runFused, type ArrayOperand, type RunPlace } from './native-fused-run.js';
import { bitsOf, randomValues } from './tfjs-setup.js';

const addon = native();
const HERE: RunPlace = { isa: addon?.isa() ?? 'portable', threads: 2 };
const PLACES: RunPlace[] = (addon?.isaList() ?? []).flatMap((isa) =>
  [1, 2, 5].map((threads) => ({ isa, threads })),
);

type Inputs = Record<string, ArrayOperand | undefined>;

function operand(shape: readonly number[], seed: number, factor = 1): ArrayOperand {
  const length = shape.reduce((product, size) => product * size, 1);
  return { shape, values: randomValues(length, seed).map((value) => factor * value) };
}

function floatsOf(inputs: Inputs, name: string): Float64Array {
  return Float64Array.from(inputs[name]!.values);
}

/** Equal outputs in every place; returns those of one. */
function sameEverywhere(name: string, inputs: Inputs, attrs: object = {}): Float32Array[] {
  const [first, ...rest] = PLACES.map((place) => ({
    place,
    outputs: runFused(name, inputs, attrs, place),
  }));
  for (const { place, outputs } of rest) {
    outputs.forEach(({ values }, index) => {
      const bits = bitsOf(values);
      const expected = bitsOf(first!.outputs[index]!.values);
      const same = bits.length === expected.length && bits.every((one, at) => one === expected[at]);
      expect(same, `${name} output ${index}, ${place.isa}, ${place.threads} threads`).toBe(true);
    });
  }
  return first!.outputs.map(({ values }) => values);
}

it.skipIf(addon === undefined)('every fused kernel that the models ask for is registered', () => {
  registerNativeKernels();
  const missing = Object.values(FUSED).filter(
    (name) => (tf.getKernel(name, 'native') as tf.KernelConfig | undefined) === undefined,
  );
  expect(missing).toEqual([]);
});

interface AttentionCase extends AttentionAttrs {
  readonly seed: number;
  /** Documents per sequence; 0: no documents are given. */
  readonly documents: number;
}

/** Inputs of the forward kernel, in the layout of the case. */
function attentionInputs(attrs: AttentionCase): Inputs {
  const { layout, batch, length, heads, keyHeads, width, seed } = attrs;
  const shapeOf = (own: number): number[] =>
    layout === 'planes' ? [batch, own, length, width] : [batch * length, own * width];
  const documents: ArrayOperand | undefined =
    attrs.documents === 0
      ? undefined
      : {
          shape: [batch, length],
          values: Int32Array.from({ length: batch * length }, (_, index) =>
            Math.floor(((index % length) * attrs.documents) / length),
          ),
        };
  if (layout === 'joined') return { q: operand(shapeOf(heads + 2 * keyHeads), seed, 2), documents };
  return {
    q: operand(shapeOf(heads), seed, 2),
    k: operand(shapeOf(keyHeads), seed + 1, 2),
    v: operand(shapeOf(keyHeads), seed + 2, 2),
    documents,
  };
}

/** Largest error of every result over its largest value. */
function attentionErrors(attrs: AttentionCase): Record<string, number> {
  const { layout, batch, length, heads, keyHeads, width, seed } = attrs;
  const inputs = attentionInputs(attrs);
  const [output, lse] = runFused(FUSED.attention, inputs, attrs, HERE);
  const dy: ArrayOperand = operand(output!.shape, seed + 3);
  const gradients = runFused(FUSED.attentionGrad, { ...inputs, output, lse, dy }, attrs, HERE).map(
    ({ values }) => values,
  );
  const joined = layout === 'joined';
  const planes = (tensors: readonly Float32Array[]): Float64Array[] =>
    [heads, keyHeads, keyHeads].map((own, index) => {
      const column = joined ? [0, heads, heads + keyHeads][index]! * width : 0;
      const tensor = tensors[joined ? 0 : index]!;
      return planesOf(attrs, own, positions(attrs, own, column), tensor);
    });
  const ofOutput = (values: Float32Array): Float64Array => {
    const own = { ...attrs, layout: joined ? ('rows' as const) : layout };
    return planesOf(own, heads, positions(own, heads, 0), values);
  };
  const given = ['q', 'k', 'v'].map((name) => inputs[name]?.values as Float32Array);
  const [q, k, v] = planes(given) as [Float64Array, Float64Array, Float64Array];
  const documents = inputs['documents']?.values as Int32Array | undefined;
  const expected = attentionReference(
    { layout, batch, length, heads, keyHeads, width },
    { q, k, v },
    ofOutput(dy.values as Float32Array),
    documents,
  );
  const [dq, dk, dv] = planes(gradients);
  // Where one key has nearly all the weight, the gradients of its score are nearly zero but for the
  // rounding of parts that cancel; the product of the largest operands says how large those may be.
  const largest = [dy.values as Float32Array, k, v].map((x) => maxDifference(x, undefined));
  const floor = 0.25 * Math.max(1, largest[0]! * largest[1]! * largest[2]!);
  const error = (actual: ArrayLike<number>, reference: Float64Array): number =>
    maxDifference(actual, reference) / Math.max(floor, maxDifference(reference, undefined));
  return {
    output: error(ofOutput(output!.values), expected.output),
    lse: error(lse!.values, expected.lse),
    dq: error(dq!, expected.dq),
    dk: error(dk!, expected.dk),
    dv: error(dv!, expected.dv),
  };
}

function maxDifference(a: ArrayLike<number>, b: ArrayLike<number> | undefined): number {
  let largest = 0;
  for (let i = 0; i < a.length; i += 1) {
    const difference = Math.abs(a[i]! - (b?.[i] ?? 0));
    if (!(difference <= largest)) largest = difference;
  }
  return largest;
}

const attentionCase = fc
  .record({
    layout: fc.constantFrom('planes' as const, 'rows' as const, 'joined' as const),
    batch: fc.integer({ min: 1, max: 2 }),
    length: fc.oneof(fc.integer({ min: 1, max: 200 }), fc.constantFrom(63, 64, 65, 128)),
    keyHeads: fc.integer({ min: 1, max: 3 }),
    group: fc.integer({ min: 1, max: 3 }),
    width: fc.constantFrom(1, 6, 16, 33, 64, 80),
    documents: fc.constantFrom(0, 0, 1, 3, 7),
    seed: fc.integer({ min: 1, max: 1e6 }),
  })
  .map(({ group, ...rest }) => ({ ...rest, heads: group * rest.keyHeads }));

describe.skipIf(addon === undefined)('causal attention', () => {
  it('equals a float64 reference within 3e-6 for random shapes, layouts and documents', () => {
    fc.assert(
      fc.property(attentionCase, (attrs) => {
        for (const [name, error] of Object.entries(attentionErrors(attrs))) {
          expect(error, name).toBeLessThan(3e-6);
        }
      }),
      { numRuns: 40 },
    );
  });

  it.each([1, 4])('has no gradient of the score of an only key (%i threads)', (threads) => {
    fc.assert(
      fc.property(attentionCase, (random) => {
        const attrs: AttentionCase = { ...random, layout: 'rows' };
        const { batch, length, heads, keyHeads, width } = attrs;
        const inputs = attentionInputs(attrs);
        const place = { ...HERE, threads };
        const [output, lse] = runFused(FUSED.attention, inputs, attrs, place);
        const dy = operand(output!.shape, attrs.seed + 3);
        const [dq, dk] = runFused(
          FUSED.attentionGrad,
          { ...inputs, output, lse, dy },
          attrs,
          place,
        ).map(({ values }) => values);
        const documents = inputs['documents']?.values ?? new Int32Array(batch * length);
        for (let row = 0; row < batch * length; row += 1) {
          const sameAs = (other: number, edge: number): boolean =>
            row % length !== edge && documents[other] === documents[row];
          if (sameAs(row - 1, 0)) continue;
          const queries = dq!.subarray(row * heads * width, (row + 1) * heads * width);
          expect(queries.every((value) => value === 0)).toBe(true);
          if (sameAs(row + 1, length - 1)) continue;
          const keys = dk!.subarray(row * keyHeads * width, (row + 1) * keyHeads * width);
          expect(keys.every((value) => value === 0)).toBe(true);
        }
      }),
      { numRuns: 30 },
    );
  });

  it('gives the queries of a document the same bits whatever another document holds', () => {
    const attrs: AttentionCase = {
      layout: 'rows',
      batch: 1,
      length: 150,
      heads: 2,
      keyHeads: 1,
      width: 16,
      documents: 2,
      seed: 5,
    };
    const inputs = attentionInputs(attrs);
    const [before] = runFused(FUSED.attention, inputs, attrs, HERE);
    // Document 0 is tokens 0 … 74.
    inputs['q']!.values.fill(30, 0, 75 * 32);
    inputs['k']!.values.fill(-40, 0, 75 * 16);
    inputs['v']!.values.fill(1e6, 0, 75 * 16);
    const [after] = runFused(FUSED.attention, inputs, attrs, HERE);
    const second = (values: Float32Array): Int32Array => bitsOf(values.subarray(75 * 32));
    expect(second(after!.values)).toEqual(second(before!.values));
    expect(after!.values[0]).not.toBe(before!.values[0]);
  });

  it('hands a NaN on to the queries that see it and to no other', () => {
    const attrs: AttentionCase = {
      layout: 'rows',
      batch: 1,
      length: 100,
      heads: 1,
      keyHeads: 1,
      width: 8,
      documents: 0,
      seed: 6,
    };
    const inputs = attentionInputs(attrs);
    inputs['k']!.values[70 * 8 + 3] = NaN;
    const [output] = runFused(FUSED.attention, inputs, attrs, HERE);
    const broken = Array.from({ length: 100 }, (_, t) => Number.isNaN(output!.values[t * 8]));
    expect(broken).toEqual(broken.map((_, t) => t >= 70));
  });

  it.each([
    { layout: 'joined', batch: 2, length: 130, heads: 3, keyHeads: 3, width: 64, documents: 0 },
    { layout: 'rows', batch: 1, length: 200, heads: 6, keyHeads: 2, width: 33, documents: 3 },
  ] as const)('has one set of bits everywhere ($layout)', (shape) => {
    const attrs: AttentionCase = { ...shape, seed: 9 };
    const inputs = attentionInputs(attrs);
    const [output, lse] = sameEverywhere(FUSED.attention, inputs, attrs);
    const { batch, length, heads, width } = attrs;
    const rows = [batch * length, heads * width];
    sameEverywhere(
      FUSED.attentionGrad,
      {
        ...inputs,
        output: { shape: rows, values: output! },
        lse: { shape: [batch, heads, length], values: lse! },
        dy: operand(rows, 77),
      },
      attrs,
    );
  });
});

interface RowShape {
  readonly rows: number;
  readonly width: number;
  readonly seed: number;
}

const rowShape = fc.record({
  rows: fc.integer({ min: 1, max: 150 }),
  width: fc.oneof(fc.integer({ min: 1, max: 100 }), fc.constantFrom(16, 64, 768)),
  seed: fc.integer({ min: 1, max: 1e6 }),
});

/** x̂, its statistics, y and the gradients of a norm in float64. */
function normReference(inputs: Inputs, { rows, width }: RowShape, centred: boolean, eps: number) {
  const [x, weight, dy] = ['x', 'weight', 'dy'].map((name) => floatsOf(inputs, name)) as [
    Float64Array,
    Float64Array,
    Float64Array,
  ];
  const bias = inputs['bias']?.values;
  const [y, dx] = [0, 0].map(() => new Float64Array(x.length)) as [Float64Array, Float64Array];
  const dWeight = new Float64Array(width);
  const mean = new Float64Array(rows);
  const rstd = new Float64Array(rows);
  const columns = Array.from({ length: width }, (_, c) => c);
  const average = (f: (c: number) => number): number =>
    columns.reduce((sum, c) => sum + f(c), 0) / width;
  for (let row = 0; row < rows; row += 1) {
    const at = (c: number): number => row * width + c;
    mean[row] = centred ? average((c) => x[at(c)]!) : 0;
    rstd[row] = 1 / Math.sqrt(average((c) => (x[at(c)]! - mean[row]!) ** 2) + eps);
    const hat = (c: number): number => (x[at(c)]! - mean[row]!) * rstd[row]!;
    const g = (c: number): number => dy[at(c)]! * weight[c]!;
    const meanG = centred ? average(g) : 0;
    const slope = average((c) => g(c) * hat(c));
    for (const c of columns) {
      y[at(c)] = hat(c) * weight[c]! + (bias?.[c] ?? 0);
      dx[at(c)] = rstd[row]! * (g(c) - meanG - hat(c) * slope);
      dWeight[c]! += dy[at(c)]! * hat(c);
    }
  }
  return { y, dx, dWeight, mean, rstd };
}

describe.skipIf(addon === undefined)('cached attention', () => {
  it.each([
    [0, 70],
    [64, 1],
    [63, 5],
    [150, 1],
    [40, 130],
  ])(
    'of %i cached and %i new rows has the bits of the whole attention everywhere',
    (first, count) => {
      const [heads, keyHeads, width] = [4, 2, 24];
      const length = first + count;
      const whole = {
        q: operand([length, heads * width], 1, 2),
        k: operand([length, keyHeads * width], 2, 2),
        v: operand([length, keyHeads * width], 3),
      };
      const rows = ({ shape, values }: ArrayOperand, from: number, to: number): ArrayOperand => ({
        shape: [to - from, shape[1]!],
        values: values.slice(from * shape[1]!, to * shape[1]!),
      });
      const cached = first > 0;
      const inputs = {
        q: rows(whole.q, first, length),
        k: rows(whole.k, first, length),
        v: rows(whole.v, first, length),
        cachedK: cached ? rows(whole.k, 0, first) : undefined,
        cachedV: cached ? rows(whole.v, 0, first) : undefined,
      };
      const division = { heads, keyHeads, width };
      const [actual] = sameEverywhere(FUSED.cachedAttention, inputs, division);
      const attrs = { layout: 'rows', batch: 1, length, ...division };
      const [output] = runFused(FUSED.attention, whole, attrs, HERE);
      const expected = output!.values.subarray(first * heads * width);
      expect(bitsOf(actual!)).toEqual(bitsOf(expected));
    },
  );
});

describe.skipIf(addon === undefined)('norms', () => {
  const check = (shape: RowShape, centred: boolean, everywhere: boolean): void => {
    const { rows, width, seed } = shape;
    const run = (name: string, inputs: Inputs, attrs: object = {}): Float32Array[] =>
      everywhere
        ? sameEverywhere(name, inputs, attrs)
        : runFused(name, inputs, attrs, HERE).map(({ values }) => values);
    const inputs: Inputs = {
      x: operand([rows, width], seed, 3),
      weight: operand([width], seed + 1),
      dy: operand([rows, width], seed + 2),
      ...(centred ? { bias: operand([width], seed + 3) } : {}),
    };
    const epsilon = 1e-2;
    const expected = normReference(inputs, shape, centred, epsilon);
    const { x, weight, bias, dy } = inputs;
    const outputs = run(
      centred ? FUSED.layerNorm : FUSED.rmsNorm,
      { x, weight, bias },
      { epsilon },
    );
    const [y, ...statistics] = outputs;
    const [mean, rstd] = (centred ? statistics : [undefined, ...statistics]).map((values) =>
      values === undefined ? undefined : { shape: [rows, 1], values },
    );
    const [dx] = run(FUSED.normGradX, { dy, x, weight, mean, rstd });
    const [dWeight] = run(FUSED.normGradWeight, { dy, x, mean, rstd });
    const error = (actual: Float32Array, reference: Float64Array, terms = 0): number => {
      const scale = Math.max(1e-2, maxDifference(reference, undefined), terms);
      return maxDifference(actual, reference) / scale;
    };
    // The gradient of x is a difference that may vanish: what counts are the terms it is made of.
    const scaled = dy!.values.map((value, index) => value * weight!.values[index % width]!);
    const terms = maxDifference(scaled, undefined) * maxDifference(expected.rstd, undefined);
    expect(error(y!, expected.y), 'y').toBeLessThan(2e-6);
    expect(error(rstd!.values, expected.rstd), 'rstd').toBeLessThan(1e-6);
    expect(error(dx!, expected.dx, terms), 'dx').toBeLessThan(4e-6);
    expect(error(dWeight!, expected.dWeight), 'dWeight').toBeLessThan(2e-6);
  };

  it.each([
    ['LayerNorm', true],
    ['RMSNorm', false],
  ])('%s and its gradients equal float64 for random shapes', (_name, centred) => {
    fc.assert(
      fc.property(rowShape, (shape) => check(shape, centred, false)),
      { numRuns: 40 },
    );
  });

  it.each([
    ['LayerNorm', true],
    ['RMSNorm', false],
  ])('%s has one set of bits everywhere', (_name, centred) => {
    check({ rows: 300, width: 205, seed: 4 }, centred, true);
  });
});

/** Below float32's normal numbers an error has no relative size. */
const TINY = 2 ** -126;

const GELU_SCALE = Math.sqrt(2 / Math.PI);

const ACTIVATIONS = [
  {
    name: 'gelu_new',
    forward: FUSED.geluNew,
    backward: FUSED.geluNewGrad,
    operands: ['x'],
    value: ([x]: number[]) => 0.5 * x! * (1 + Math.tanh(GELU_SCALE * (x! + 0.044715 * x! ** 3))),
    slopes: [
      ([x]: number[]) => {
        const t = Math.tanh(GELU_SCALE * (x! + 0.044715 * x! ** 3));
        return 0.5 * (1 + t) + 0.5 * x! * (1 - t * t) * GELU_SCALE * (1 + 3 * 0.044715 * x! * x!);
      },
    ],
  },
  {
    name: 'SwiGLU',
    forward: FUSED.swiglu,
    backward: FUSED.swigluGrad,
    operands: ['gate', 'up'],
    value: ([gate, up]: number[]) => (gate! / (1 + Math.exp(-gate!))) * up!,
    slopes: [
      ([gate, up]: number[]) => {
        const sigma = 1 / (1 + Math.exp(-gate!));
        return up! * sigma * (1 + gate! * (1 - sigma));
      },
      ([gate]: number[]) => gate! / (1 + Math.exp(-gate!)),
    ],
  },
];

describe.skipIf(addon === undefined).each(ACTIVATIONS)('$name', (activation) => {
  const { forward, backward, operands, value, slopes } = activation;
  const inputsOf = (length: number, seed: number, factor: number): Inputs =>
    Object.fromEntries(
      ['dy', ...operands].map((name, index) => [name, operand([length], seed + index, factor)]),
    );
  const pointOf = (inputs: Inputs, index: number): number[] =>
    operands.map((name) => inputs[name]!.values[index]!);

  it('and its gradient equal float64, from tiny to saturated inputs', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 100 }),
        fc.integer({ min: 1, max: 1e6 }),
        fc.constantFrom(1e-20, 1e-3, 1, 6, 40, 500),
        (length, seed, factor) => {
          const inputs = inputsOf(length, seed, factor);
          const { dy, ...xs } = inputs;
          const [y] = runFused(forward, xs, {}, HERE);
          const gradients = runFused(backward, { dy, ...xs }, {}, HERE);
          for (let i = 0; i < length; i += 1) {
            const point = pointOf(inputs, i);
            // 2e-6 of the scale of the inputs: values that cancel are as far off as their parts.
            const scale = Math.max(...point.map(Math.abs));
            const scaleOfY = operands.length === 2 ? scale * Math.abs(point[1]!) : scale;
            expect(Math.abs(y!.values[i]! - value(point))).toBeLessThanOrEqual(
              2e-6 * scaleOfY + TINY,
            );
            slopes.forEach((slope, index) => {
              const expected = dy!.values[i]! * slope(point);
              const bound = 2e-6 * Math.abs(dy!.values[i]!) * Math.max(1, scale, scale * scale);
              const actual = gradients[index]!.values[i]!;
              expect(Math.abs(actual - expected)).toBeLessThanOrEqual(bound + TINY);
            });
          }
        },
      ),
      { numRuns: 60 },
    );
  });

  it('handles infinities and NaN as the formula does', () => {
    const values = Float32Array.of(NaN, -1e30, 1e30);
    const x = { shape: [3], values };
    const inputs = Object.fromEntries(operands.map((name) => [name, x]));
    const [y] = runFused(forward, inputs, {}, HERE);
    expect(y!.values[0]).toBeNaN();
    expect(Math.abs(y!.values[1]!)).toBeLessThan(1);
    expect(y!.values[2]).toBe(operands.length === 2 ? Infinity : Math.fround(1e30));
  });

  it('has one set of bits everywhere', () => {
    const { dy, ...xs } = inputsOf(40_003, 3, 5);
    sameEverywhere(forward, xs);
    sameEverywhere(backward, { dy, ...xs });
  });
});

describe.skipIf(addon === undefined)('rotary embedding', () => {
  const inputs = (rows: number, length: number, width: number): Inputs => ({
    x: operand([rows, width], 1),
    table: operand([2, length, width / 2], 2),
  });

  it.each([
    [14, 7, 6, 1],
    [36, 6, 64, 3],
    [40, 5, 34, 4],
  ])(
    'turns each pair by its position (%i rows, T=%i, D=%i)',
    (rows, length, width, perPosition) => {
      const given = inputs(rows, length, width);
      const attrs = { width, length, rowsPerPosition: perPosition, direction: -1 };
      const [actual] = runFused(FUSED.rotary, given, attrs, HERE);
      const [x, table] = [floatsOf(given, 'x'), floatsOf(given, 'table')];
      const half = width / 2;
      const expected = x.map((value, index) => {
        const [row, column] = [Math.floor(index / width), index % width];
        const i = column % half;
        const angle = (Math.floor(row / perPosition) % length) * half + i;
        const [cos, sin] = [table[angle]!, -table[length * half + angle]!];
        const partner = x[row * width + ((column + half) % width)]!;
        return value * cos + (column < half ? -partner : partner) * sin;
      });
      expect(relativeError(actual!.values, expected)).toBeLessThan(1e-6);
    },
  );

  it('has one set of bits everywhere', () => {
    const attrs = { width: 66, length: 100, rowsPerPosition: 4, direction: 1 };
    sameEverywhere(FUSED.rotary, inputs(800, 100, 66), attrs);
  });
});

interface LossCase {
  readonly batch: number;
  readonly length: number;
  readonly vocab: number;
  readonly tile: number;
  readonly seed: number;
}

const lossCase = fc.record({
  batch: fc.integer({ min: 1, max: 3 }),
  length: fc.integer({ min: 1, max: 30 }),
  vocab: fc.integer({ min: 2, max: 100 }),
  tile: fc.integer({ min: 1, max: 60 }),
  seed: fc.integer({ min: 1, max: 1e6 }),
});

describe.skipIf(addon === undefined)('cross-entropy in tiles', () => {
  const prepare = ({ batch, length, vocab, seed }: LossCase) => {
    const labels = {
      shape: [batch, length],
      values: Int32Array.from({ length: batch * length }, (_, index) =>
        (index + seed) % 5 === 0 ? -100 : (index * 7 + seed) % vocab,
      ),
    };
    return { labels, logits: operand([batch * length, vocab], seed, 20) };
  };
  const tileOf = (logits: ArrayOperand, first: number, count: number): ArrayOperand => {
    const [rows, vocab] = logits.shape as [number, number];
    const values = Float32Array.from(
      { length: rows * count },
      (_, index) => logits.values[Math.floor(index / count) * vocab + first + (index % count)]!,
    );
    return { shape: [rows, count], values };
  };

  it('has the log-sum-exp, target logits and gradients of float64', () => {
    fc.assert(
      fc.property(lossCase, (sizes) => {
        const { batch, length, vocab, tile } = sizes;
        const { labels, logits } = prepare(sizes);
        const rows = batch * length;
        let carry: ArrayOperand[] = [-1e30, 0, 0].map((value) => {
          return { shape: [rows], values: new Float32Array(rows).fill(value) };
        });
        const tiles = Array.from({ length: Math.ceil(vocab / tile) }, (_, index) => index * tile);
        for (const firstRow of tiles) {
          const [largest, total, target] = carry;
          const part = tileOf(logits, firstRow, Math.min(tile, vocab - firstRow));
          const inputs = { logits: part, largest, total, target, labels };
          carry = runFused(FUSED.lossTile, inputs, { firstToken: 0, firstRow }, HERE);
        }
        const lse = Float32Array.from(
          { length: rows },
          (_, row) => carry[0]!.values[row]! + Math.log(carry[1]!.values[row]!),
        );
        for (const firstRow of tiles) {
          const part = tileOf(logits, firstRow, Math.min(tile, vocab - firstRow));
          const inputs = { logits: part, lse: { shape: [rows], values: lse }, labels };
          const attrs = { firstToken: 0, firstRow, scale: 0.5 };
          const [gradient] = runFused(FUSED.lossTileGrad, inputs, attrs, HERE);
          for (let row = 0; row < rows; row += 1) {
            const last = row % length === length - 1;
            const label = last ? -100 : labels.values[row + 1]!;
            const all = Array.from(logits.values.subarray(row * vocab, (row + 1) * vocab));
            const largest = Math.max(...all);
            const total = all.reduce((sum, logit) => sum + Math.exp(logit - largest), 0);
            expect(Math.abs(lse[row]! - largest - Math.log(total))).toBeLessThan(1e-5);
            expect(carry[2]!.values[row]).toBe(label < 0 ? 0 : all[label]);
            for (let c = 0; c < part.shape[1]!; c += 1) {
              const word = firstRow + c;
              const p = Math.exp(all[word]! - largest) / total;
              const expected = label < 0 ? 0 : 0.5 * (p - (word === label ? 1 : 0));
              const actual = gradient!.values[row * part.shape[1]! + c]!;
              expect(Math.abs(actual - expected)).toBeLessThan(3e-6);
            }
          }
        }
      }),
      { numRuns: 25 },
    );
  });

  it('has one set of bits everywhere', () => {
    const sizes = { batch: 3, length: 70, vocab: 333, tile: 333, seed: 8 };
    const { labels, logits } = prepare(sizes);
    const [largest, total, target] = [3, 4, 5].map((seed) => operand([210], seed));
    const attrs = { firstToken: 0, firstRow: 0, scale: 0.1 };
    sameEverywhere(FUSED.lossTile, { logits, largest, total, target, labels }, attrs);
    sameEverywhere(FUSED.lossTileGrad, { logits, lse: largest, labels }, attrs);
  });
});
