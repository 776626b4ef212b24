// Goal: each coarse operation has the values and gradients of the plain tfjs formula, and no leaks.
import * as tf from '@tensorflow/tfjs-core';
import type { Tensor } from '@tensorflow/tfjs-core';
import { describe, expect, it } from 'vitest';
import { causalAttention } from '../../src/model/ops/causal-attention.js';
import { geluNew } from '../../src/model/ops/gelu-new.js';
import { layerNorm } from '../../src/model/ops/layer-norm.js';
import { linear } from '../../src/model/ops/linear.js';
import { residualAdd } from '../../src/model/ops/residual-add.js';
import { rmsNorm } from '../../src/model/ops/rms-norm.js';
import { rotary } from '../../src/model/ops/rotary.js';
import { joinedAttention, rowAttention } from '../../src/model/ops/self-attention.js';
import { swiglu } from '../../src/model/ops/swiglu.js';
import { makeRope } from '../../src/model/rope.js';
import { vjp } from '../../tiers/device/tape.js';
import { randomTensor } from '../device/tfjs-setup.js';
import { BACKENDS, useBackend } from './backends.js';
import { relativeError } from './fixture-model.js';

const TOLERANCE = 3e-6;

type Formula = (...xs: Tensor[]) => Tensor;

interface Case {
  readonly name: string;
  readonly shapes: readonly number[][];
  readonly coarse: Formula;
  readonly plain: Formula;
}

/** Attention by the whole score matrix, keys repeated for their group of query heads. */
function plainAttention(q: Tensor, k: Tensor, v: Tensor): Tensor {
  const [, heads, length, width] = q.shape as [number, number, number, number];
  const group = heads / k.shape[1]!;
  const repeat = (x: Tensor): Tensor => {
    const [batch, keyHeads, , last] = x.shape as [number, number, number, number];
    const tiled = tf.stack(
      Array.from({ length: group }, () => x),
      2,
    );
    return tf.reshape(tiled, [batch, keyHeads * group, length, last]);
  };
  const future = tf.buffer([length, length]);
  for (let i = 0; i < length; i += 1) {
    for (let j = i + 1; j < length; j += 1) future.set(-1e9, i, j);
  }
  const scores = tf.div(tf.matMul(q, repeat(k), false, true), Math.sqrt(width));
  return tf.matMul(tf.softmax(tf.add(scores, future.toTensor())), repeat(v));
}

/** Rotation of pairs (i, i + D/2) as one product with a block matrix per token; `positions` [B·T]. */
function plainRotary(x: Tensor, theta: number, positions?: ArrayLike<number>): Tensor {
  const [batch, heads, length, width] = x.shape as [number, number, number, number];
  const half = width / 2;
  const turns = tf.buffer([batch, 1, length, width, width]);
  for (let row = 0; row < batch * length; row += 1) {
    const [sequence, t] = [Math.floor(row / length), row % length];
    for (let i = 0; i < half; i += 1) {
      const angle = (positions?.[row] ?? t) * theta ** ((-2 * i) / width);
      turns.set(Math.cos(angle), sequence, 0, t, i, i);
      turns.set(Math.cos(angle), sequence, 0, t, i + half, i + half);
      turns.set(Math.sin(angle), sequence, 0, t, i, i + half);
      turns.set(-Math.sin(angle), sequence, 0, t, i + half, i);
    }
  }
  const rows = tf.reshape(x, [batch, heads, length, 1, width]);
  const matrices = tf.tile(turns.toTensor(), [1, heads, 1, 1, 1]);
  return tf.reshape(tf.matMul(rows, matrices), x.shape);
}

function plainLayerNorm(x: Tensor, weight: Tensor, bias: Tensor): Tensor {
  const centred = tf.sub(x, tf.mean(x, -1, true));
  const variance = tf.mean(tf.square(centred), -1, true);
  return tf.add(tf.mul(tf.div(centred, tf.sqrt(tf.add(variance, 1e-5))), weight), bias);
}

function plainGelu(x: Tensor): Tensor {
  const inner = tf.mul(tf.add(x, tf.mul(tf.pow(x, 3), 0.044715)), Math.sqrt(2 / Math.PI));
  return tf.mul(tf.mul(x, 0.5), tf.add(tf.tanh(inner), 1));
}

/** Places of the tokens of two rows of 9 in their documents. */
const PACKED = [0, 1, 2, 3, 0, 1, 0, 1, 2, 0, 0, 1, 2, 3, 4, 5, 6, 7];

const IN_OUT = { weight: 'in,out' } as const;
const OUT_IN = { weight: 'out,in' } as const;

const CASES: readonly Case[] = [
  {
    name: 'linear with a Conv1D weight and a bias',
    shapes: [[7, 5], [5, 3], [3]],
    coarse: (x, w, b) => linear(x, w, b, IN_OUT),
    plain: (x, w, b) => tf.add(tf.matMul(x, w), b),
  },
  {
    name: 'linear with a Linear weight and no bias',
    shapes: [
      [7, 5],
      [3, 5],
    ],
    coarse: (x, w) => linear(x, w, undefined, OUT_IN),
    plain: (x, w) => tf.matMul(x, tf.transpose(w)),
  },
  {
    name: 'residualAdd of one tensor with itself',
    shapes: [[4, 3]],
    coarse: (x) => residualAdd(x, x),
    plain: (x) => tf.mul(x, 2),
  },
  {
    name: 'layerNorm',
    shapes: [[7, 13], [13], [13]],
    coarse: (x, w, b) => layerNorm(x, w, b, 1e-5),
    plain: (x, w, b) => plainLayerNorm(x, w, b),
  },
  {
    name: 'rmsNorm',
    shapes: [[7, 13], [13]],
    coarse: (x, w) => rmsNorm(x, w, 1e-6),
    plain: (x, w) => tf.mul(tf.div(x, tf.sqrt(tf.add(tf.mean(tf.square(x), -1, true), 1e-6))), w),
  },
  {
    name: 'geluNew',
    shapes: [[7, 13]],
    // Beyond [-3, 3] on both sides, where the tail and the identity begin.
    coarse: (x) => geluNew(tf.mul(x, 4)),
    plain: (x) => plainGelu(tf.mul(x, 4)),
  },
  {
    name: 'swiglu',
    shapes: [
      [7, 13],
      [7, 13],
    ],
    coarse: (gate, up) => swiglu(tf.mul(gate, 6), up),
    plain: (gate, up) => tf.mul(tf.mul(tf.mul(gate, 6), tf.sigmoid(tf.mul(gate, 6))), up),
  },
  {
    name: 'rotary',
    shapes: [[2, 3, 9, 6]],
    coarse: (x) => rotary(x, makeRope(6, 100)),
    plain: (x) => plainRotary(x, 100),
  },
  {
    name: 'rotary of packed documents',
    shapes: [[2, 3, 9, 6]],
    coarse: (x) => rotary(x, makeRope(6, 100), Int32Array.from(PACKED)),
    plain: (x) => plainRotary(x, 100, PACKED),
  },
  ...[
    { title: 'one chunk, equal heads', batch: 2, heads: 2, keyHeads: 2, length: 9 },
    { title: 'one token', batch: 2, heads: 2, keyHeads: 1, length: 1 },
    { title: 'exactly one full chunk', batch: 2, heads: 1, keyHeads: 1, length: 128 },
    { title: 'three chunks, grouped heads', batch: 1, heads: 4, keyHeads: 2, length: 261 },
  ].map(({ title, batch, heads, keyHeads, length }) => ({
    name: `causalAttention (${title})`,
    shapes: [
      [batch, heads, length, 3],
      [batch, keyHeads, length, 3],
      [batch, keyHeads, length, 3],
    ],
    coarse: (q: Tensor, k: Tensor, v: Tensor) => causalAttention(tf.mul(q, 4), tf.mul(k, 4), v),
    plain: (q: Tensor, k: Tensor, v: Tensor) => plainAttention(tf.mul(q, 4), tf.mul(k, 4), v),
  })),
];

/** The output and all gradients, as arrays. */
function evaluate(formula: Formula, xs: readonly Tensor[]): Float32Array[] {
  const { grads, ys } = vjp(
    () => [formula(...xs)],
    xs,
    ([y]) => [randomTensor(y!.shape, 99)],
    { keepOutputs: true },
  );
  const arrays = [...ys!, ...grads].map((tensor) => (tensor.dataSync() as Float32Array).slice());
  tf.dispose([...ys!, ...grads]);
  return arrays;
}

const EVERYWHERE = BACKENDS.flatMap((backend) => CASES.map((each) => ({ ...each, backend })));

describe.each(EVERYWHERE)('$name on $backend', ({ shapes, coarse, plain, backend }) => {
  useBackend(backend);

  it('has the values and gradients of the plain formula', () => {
    const xs = shapes.map((shape, index) => randomTensor(shape, index + 1));
    const actual = evaluate(coarse, xs);
    const expected = evaluate(plain, xs);
    tf.dispose(xs);
    actual.forEach((values, index) => {
      const largest = Math.max(...expected[index]!.map(Math.abs));
      // A gradient that is exactly zero (softmax over one key) is compared absolutely.
      const error =
        largest < 1e-6
          ? Math.max(...values.map(Math.abs))
          : relativeError(values, expected[index]!);
      expect(error, index === 0 ? 'output' : `gradient ${index - 1}`).toBeLessThan(TOLERANCE);
    });
  });

  it('leaves no tensor behind, with and without a tape', () => {
    const xs = shapes.map((shape, index) => randomTensor(shape, index + 1));
    const before = tf.memory();
    evaluate(coarse, xs);
    tf.tidy(() => void coarse(...xs));
    const after = tf.memory();
    tf.dispose(xs);
    expect([after.numTensors, after.numBytes]).toEqual([before.numTensors, before.numBytes]);
  });
});

describe.each(BACKENDS)('attention of documents on %s', (backend) => {
  useBackend(backend);

  it.each([
    ['short', 2, 20],
    ['beyond one chunk', 1, 150],
  ])('equals attention of each document alone (%s)', (_title, batch, length) => {
    const [heads, keyHeads, width] = [4, 2, 6];
    const cut = Math.floor(length / 3);
    const shapes = [heads, keyHeads, keyHeads].map((own) => [batch, own, length, width]);
    const xs = shapes.map((shape, index) => randomTensor(shape, index + 1));
    const ids = Int32Array.from({ length: batch * length }, (_, index) =>
      index % length < cut ? 3 : 8,
    );
    const documents = tf.tensor2d(ids, [batch, length], 'int32');
    const together = evaluate((q, k, v) => causalAttention(q, k, v, documents), xs);
    const apart = evaluate((...qkv) => {
      const parts = [
        [0, cut],
        [cut, length - cut],
      ].map(([first, count]) => {
        const [q, k, v] = qkv.map((x) =>
          tf.slice(x, [0, 0, first!, 0], [batch, x.shape[1]!, count!, width]),
        );
        return plainAttention(q!, k!, v!);
      });
      return tf.concat(parts, 2);
    }, xs);
    tf.dispose([xs, documents]);
    together.forEach((values, index) => {
      expect(relativeError(values, apart[index]!), `result ${index}`).toBeLessThan(TOLERANCE);
    });
  });
});

describe.each(BACKENDS)('attention of one key on %s', (backend) => {
  useBackend(backend);

  it('gives queries and keys no gradient at all, not even a rounding error', () => {
    const shapes = [4, 2, 2].map((own) => [1, own, 9, 24]);
    const xs = shapes.map((shape, index) => randomTensor(shape, index + 1));
    const documents = tf.tensor2d(
      Int32Array.from({ length: 9 }, (_, row) => row),
      [1, 9],
      'int32',
    );
    const [, dq, dk, dv] = evaluate((q, k, v) => causalAttention(q, k, v, documents), xs);
    tf.dispose([xs, documents]);
    expect([dq, dk].every((values) => values!.every((value) => value === 0))).toBe(true);
    expect(dv!.some((value) => value !== 0)).toBe(true);
  });
});

/** Rows [B·T, H·D] of x [B, H, T, D]. */
function asRows(x: Tensor): Tensor {
  const [batch, heads, length, width] = x.shape as [number, number, number, number];
  return tf.reshape(tf.transpose(x, [0, 2, 1, 3]), [batch * length, heads * width]);
}

describe.each(BACKENDS)('attention of rows on %s', (backend) => {
  useBackend(backend);
  const shape = { batch: 2, length: 70, heads: 4, keyHeads: 2 };
  const width = 6;
  const compare = (actual: Formula, expected: Formula, xs: Tensor[]): void => {
    const results = [actual, expected].map((formula) => evaluate(formula, xs));
    tf.dispose(xs);
    results[0]!.forEach((values, index) => {
      const error = relativeError(values, results[1]![index]!);
      expect(error, `result ${index}`).toBeLessThan(TOLERANCE);
    });
  };
  const planes = (x: Tensor, heads: number): Tensor =>
    tf.transpose(tf.reshape(x, [shape.batch, shape.length, heads, width]), [0, 2, 1, 3]);

  const rope = makeRope(width, 1000);
  it.each([
    ['all in turn', undefined],
    ['of packed documents', Int32Array.from({ length: 140 }, (_, row) => (row % 70) % 23)],
  ])('with rotary positions, %s, equals the plain formulas one after the other', (_, places) => {
    compare(
      (q, k, v) => rowAttention([q, k, v], { ...shape, rope }, { positions: places }),
      (q, k, v) =>
        asRows(
          plainAttention(
            plainRotary(planes(q, 4), 1000, places),
            plainRotary(planes(k, 2), 1000, places),
            planes(v, 2),
          ),
        ),
      [4, 2, 2].map((heads, index) => randomTensor([140, heads * width], index + 1)),
    );
  });

  it('joined in one tensor equals the plain formula on its parts', () => {
    compare(
      (qkv) => joinedAttention(qkv, shape),
      (qkv) => {
        const [q, k, v] = tf.split(qkv, 3, 1).map((part) => planes(part, 4));
        return asRows(plainAttention(q!, k!, v!));
      },
      [randomTensor([140, 3 * 4 * width], 5)],
    );
  });
});
