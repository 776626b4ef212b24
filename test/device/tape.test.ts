// Goal: the tape walker gives the bits of tf.grads, frees everything, and holds less while it walks.
import * as tf from '@tensorflow/tfjs-core';
import type { Tensor } from '@tensorflow/tfjs-core';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { defineOp } from '../../tiers/device/custom-op.js';
import { ensureGradients } from '../../tiers/device/gradients.js';
import { forwardWithTape, vjp } from '../../tiers/device/tape.js';
import { bitsOf, peakBytesOf, randomTensor, useCpuBackend } from './tfjs-setup.js';

useCpuBackend();
ensureGradients();

const ROWS = 3;
const COLUMNS = 4;

/** Operations from [3, 4] tensors to a [3, 4] tensor; kernels of GPT-2 and Llama blocks. */
const OPERATIONS: Record<string, (a: Tensor, b: Tensor) => Tensor> = {
  add: (a, b) => tf.add(a, b),
  sub: (a, b) => tf.sub(a, b),
  mul: (a, b) => tf.mul(a, b),
  div: (a, b) => tf.div(a, tf.add(tf.square(b), 1)),
  matMul: (a, b) => tf.matMul(tf.matMul(a, b, false, true), b),
  transpose: (a, b) => tf.reshape(tf.transpose(tf.mul(a, b)), [ROWS, COLUMNS]),
  softmax: (a) => tf.softmax(a),
  tanh: (a) => tf.tanh(a),
  sigmoid: (a, b) => tf.mul(tf.sigmoid(a), b),
  norm: (a) => {
    const centered = tf.sub(a, tf.mean(a, -1, true));
    return tf.mul(centered, tf.rsqrt(tf.add(tf.mean(tf.square(centered), -1, true), 1e-5)));
  },
  pow: (a) => tf.pow(tf.abs(a), 3),
  broadcast: (a, b) => tf.add(a, tf.sum(b, 0)),
  split: (a, b) => {
    const [left, right] = tf.split(a, 2, 1);
    return tf.concat([right!, tf.mul(left!, tf.slice(b, [0, 0], [ROWS, 2]))], 1);
  },
  halfSplit: (a) => tf.tile(tf.split(a, 2, 1)[1]!, [1, 2]),
  tile: (a) => tf.tile(tf.slice(a, [0, 1], [ROWS, 1]), [1, COLUMNS]),
  exp: (a) => tf.exp(tf.neg(tf.square(a))),
  max: (a) => tf.sub(a, tf.max(a, -1, true)),
  cast: (a) => tf.cast(tf.cast(a, 'float32'), 'float32'),
  constant: (_a, b) => tf.mul(tf.softmax(tf.fill([ROWS, COLUMNS], 0.5)), b),
  tidy: (a, b) => tf.tidy(() => tf.mul(tf.exp(tf.neg(tf.square(a))), tf.tanh(b))),
  custom: (a, b) => coarseProduct([a, b], { factor: 3 })[0]!,
  customGrad: (a) => shared(a),
};

/** y = factor * a * b; also gives a + b, which graphs here leave unused. */
const coarseProduct = defineOp<{ factor: number }>('coarseProduct', {
  forward: ([a, b], { factor }) => ({
    outputs: [tf.mul(tf.mul(a!, factor), b!), tf.add(a!, b!)],
    saved: [a!, b!],
  }),
  backward: ([dy, dsum], [a, b], { factor }) => [
    () => tf.add(tf.mul(dy!, tf.mul(b!, factor)), dsum!),
    tf.add(tf.mul(dy!, tf.mul(a!, factor)), dsum!),
  ],
});

/** Its gradient function returns dy itself, which freeing must not touch. */
const shared = tf.customGrad((x, save) => {
  (save as (tensors: Tensor[]) => void)([x as Tensor]);
  return { value: tf.add(x as Tensor, 1), gradFunc: (dy: Tensor) => dy };
});

interface Step {
  readonly operation: string;
  readonly left: number;
  readonly right: number;
}

const graph = fc.record({
  xCount: fc.integer({ min: 1, max: 4 }),
  seed: fc.integer({ min: 1, max: 1_000_000 }),
  steps: fc.array(
    fc.record<Step>({
      operation: fc.constantFrom(...Object.keys(OPERATIONS)),
      left: fc.nat(50),
      right: fc.nat(50),
    }),
    { minLength: 1, maxLength: 12 },
  ),
});

function evaluate(steps: readonly Step[], xs: readonly Tensor[]): Tensor {
  const pool = [...xs];
  for (const { operation, left, right } of steps) {
    // Prefers recent tensors, so that graphs are deep.
    const pick = (index: number): Tensor => pool[pool.length - 1 - (index % pool.length)]!;
    pool.push(OPERATIONS[operation]!(pick(left), pick(right)));
  }
  return pool.at(-1)!;
}

describe('vjp', () => {
  test('gives the bits of tf.grads on random graphs and leaves only the gradients', () => {
    fc.assert(
      fc.property(graph, ({ xCount, seed, steps }) => {
        const before = tf.memory().numTensors;
        const xs = Array.from({ length: xCount }, (_, i) => randomTensor([3, 4], seed + i));
        const dy = randomTensor([ROWS, COLUMNS], seed + 100);
        const engine = tf.engine();
        const f = (): Tensor => evaluate(steps, xs);
        const { grads: expected, value } = engine.gradients(f, xs, dy, true);
        const held = tf.memory().numTensors;
        const { grads, ys } = vjp(
          () => [f()],
          xs,
          () => [tf.clone(dy)],
          { keepOutputs: true },
        );
        expect(tf.memory().numTensors).toBe(held + grads.length + ys!.length);
        expect(bitsOf(ys![0]!)).toEqual(bitsOf(value));
        for (const [index, gradient] of grads.entries()) {
          const reference = expected[index];
          const zeros = new Int32Array(ROWS * COLUMNS);
          expect(bitsOf(gradient)).toEqual(reference === undefined ? zeros : bitsOf(reference));
        }
        tf.dispose([xs, dy, value, expected, grads, ys!]);
        expect(tf.memory().numTensors).toBe(before);
      }),
      { numRuns: 150 },
    );
  });

  test('sums the gradients of several outputs, as two separate reverse passes would', () => {
    const x = randomTensor([3, 4], 1);
    const { grads } = vjp(
      () => [tf.square(x), tf.tanh(x)],
      [x],
      (ys) => ys.map((y) => tf.onesLike(y)),
    );
    const second = tf.grad((t: Tensor) => tf.tanh(t))(x);
    const first = tf.grad((t: Tensor) => tf.square(t))(x);
    const expected = tf.add(second, first);
    expect(bitsOf(grads[0]!)).toEqual(bitsOf(expected));
    tf.dispose([x, grads, first, second, expected]);
  });

  test('accepts one dy for two outputs, an x that is an output, and an x listed twice', () => {
    const before = tf.memory().numTensors;
    const x = tf.tensor1d([1, 2, 3]);
    const { grads } = vjp(
      () => [x, tf.mul(x, 2)],
      [x, x],
      () => {
        const dy = tf.tensor1d([1, 10, 100]);
        return [dy, dy];
      },
    );
    expect([...grads[0]!.dataSync()]).toEqual([3, 30, 300]);
    expect([...grads[1]!.dataSync()]).toEqual([3, 30, 300]);
    tf.dispose(grads);
    expect([...x.dataSync()]).toEqual([1, 2, 3]);
    x.dispose();
    expect(tf.memory().numTensors).toBe(before);
  });

  test('works where f itself calls tf.grads', () => {
    const x = tf.tensor1d([1, 2, 3]);
    const c = tf.tensor1d([2, 3, 4]);
    const { grads } = vjp(
      // d/dc of x*c^3 = 3 x c^2: differentiated inside with respect to a tensor that is no x.
      () => [tf.grad((t: Tensor) => tf.mul(x, tf.mul(t, tf.square(t))))(c)],
      [x],
      () => [tf.ones([3])],
    );
    expect([...grads[0]!.dataSync()]).toEqual([12, 27, 48]);
    tf.dispose([x, c, grads]);
  });

  test('names the kernel without a gradient, only when it lies on the path, and frees all', () => {
    const before = tf.memory().numTensors;
    const x = randomTensor([3, 4], 5);
    const indices = tf.tensor2d([[0], [2]], [2, 1], 'int32');
    const gathers = (): Tensor[] => {
      tf.gatherND(tf.square(x), indices);
      return [tf.tanh(x)];
    };
    tf.dispose(vjp(gathers, [x], ([y]) => [tf.onesLike(y!)]).grads);
    const onPath = (): unknown =>
      vjp(
        () => [tf.gatherND(tf.square(x), indices)],
        [x],
        ([y]) => [tf.onesLike(y!)],
      );
    expect(onPath).toThrow(
      expect.objectContaining({ code: 'GRADIENT_MISSING', facts: { kernel: 'GatherNd' } }),
    );
    tf.dispose([x, indices]);
    expect(tf.memory().numTensors).toBe(before);
  });

  test('leaves nothing behind when f, the dy function or a gradient fails', () => {
    const x = randomTensor([3, 4], 6);
    const before = tf.memory().numTensors;
    const boom = (): never => {
      throw new Error('boom');
    };
    const failing = tf.customGrad((t) => ({ value: tf.square(t as Tensor), gradFunc: boom }));
    const ones = ([y]: readonly Tensor[]): Tensor[] => [tf.onesLike(y!)];
    expect(() => vjp(() => [tf.exp(tf.square(x)), boom()], [x], ones)).toThrow('boom');
    expect(() => vjp(() => [tf.exp(tf.square(x))], [x], boom)).toThrow('boom');
    expect(() => vjp(() => [tf.exp(failing(tf.square(x)))], [x], ones)).toThrow('boom');
    const wrong = (): Tensor[] => [tf.ones([4, 3])];
    expect(() => vjp(() => [tf.square(x)], [x], wrong)).toThrow(
      expect.objectContaining({ code: 'BLOCK_INVALID' }),
    );
    expect(tf.memory().numTensors).toBe(before);
    // And the engine's tape is off again.
    const after = tf.engine() as unknown as { state: { gradientDepth: number } };
    expect(after.state.gradientDepth).toBe(0);
    x.dispose();
  });

  test('is refused inside another tape', () => {
    const x = tf.tensor1d([1, 2]);
    const inside = tf.grad((t: Tensor) => {
      expect(() => forwardWithTape(() => [tf.square(t)], [t])).toThrow(
        expect.objectContaining({ code: 'INTERNAL' }),
      );
      return tf.square(t);
    });
    tf.dispose([inside(x), x]);
  });
});

describe('memory', () => {
  test('a chain of n tanh holds n + 3 tensors at the peak, where tf.grads holds over 2n', () => {
    const links = 20;
    const elements = 1 << 14;
    const bytes = elements * 4;
    const x = randomTensor([elements], 7);
    const dy = randomTensor([elements], 8);
    const chain = (): Tensor => {
      let y: Tensor = x;
      for (let i = 0; i < links; i++) y = tf.tanh(y);
      return y;
    };
    const ours = peakBytesOf(() => {
      tf.dispose(
        vjp(
          () => [chain()],
          [x],
          () => [tf.clone(dy)],
        ).grads,
      );
    });
    const stock = peakBytesOf(() => {
      const { value, grads } = tf.engine().gradients(chain, [x], dy, true);
      tf.dispose([value, grads]);
    });
    // n saved outputs, and while one node is walked its gradient and two temporaries (1 - y^2).
    expect(ours).toBeLessThanOrEqual((links + 3) * bytes + 64);
    expect(stock).toBeGreaterThan(2 * links * bytes);
    tf.dispose([x, dy]);
  });

  test('what frozen operations save is freed during the forward pass', () => {
    const elements = 1 << 14;
    const bytes = elements * 4;
    const x = randomTensor([elements], 9);
    const frozen = randomTensor([elements], 10);
    const peak = peakBytesOf(() => {
      const recording = forwardWithTape(() => {
        // Twenty links that do not depend on x; the tidies free their handles.
        let c: Tensor = frozen;
        for (let i = 0; i < 20; i++) {
          const previous = c;
          c = tf.tanh(previous);
          if (previous !== frozen) previous.dispose();
        }
        return [tf.add(x, c)];
      }, [x]);
      recording.dispose();
      tf.dispose([...recording.ys]);
    });
    expect(peak).toBeLessThanOrEqual(2 * bytes);
    tf.dispose([x, frozen]);
  });
});
