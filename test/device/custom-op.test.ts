// Goal: a coarse operation differentiates like the operations it is made of, and saves only what it says.
import * as tf from '@tensorflow/tfjs-core';
import type { Tensor } from '@tensorflow/tfjs-core';
import { expect, test } from 'vitest';
import { defineOp } from '../../tiers/device/custom-op.js';
import { ensureGradients } from '../../tiers/device/gradients.js';
import { vjp } from '../../tiers/device/tape.js';
import { bitsOf, peakBytesOf, randomTensor, useCpuBackend } from './tfjs-setup.js';

useCpuBackend();
ensureGradients();

/** silu(x) = x * sigmoid(x), with temporaries on purpose; saves x only. */
const silu = defineOp<null>('silu', {
  forward: ([x]) => {
    const wasted = tf.exp(tf.square(x!));
    tf.add(wasted, 1);
    return { outputs: [tf.mul(x!, tf.sigmoid(x!))], saved: [x!] };
  },
  backward: ([dy], [x]) => {
    const s = tf.sigmoid(x!);
    return [tf.mul(dy!, tf.mul(s, tf.add(1, tf.mul(x!, tf.sub(1, s)))))];
  },
});

const plainSilu = (x: Tensor): Tensor => tf.mul(x, tf.sigmoid(x));

test('agrees with its parts under our tape and under tf.grads', () => {
  const x = randomTensor([64], 1);
  const dy = randomTensor([64], 2);
  const expected = tf.grad(plainSilu)(x, dy);
  const stock = tf.grad((t: Tensor) => silu([t], null)[0]!)(x, dy);
  const { grads } = vjp(
    () => silu([x], null),
    [x],
    () => [tf.clone(dy)],
  );
  expect(bitsOf(grads[0]!)).toEqual(bitsOf(stock));
  const worst = tf.tidy(() => tf.max(tf.abs(tf.sub(stock, expected))).dataSync()[0]!);
  expect(worst).toBeLessThan(2e-7);
  tf.dispose([x, dy, expected, stock, grads]);
});

test('keeps nothing without a tape, and only its saved tensors with one', () => {
  const x = randomTensor([1024], 3);
  const before = tf.memory();
  const [y] = silu([x], null);
  expect(tf.memory().numTensors).toBe(before.numTensors + 1);
  y!.dispose();
  // On the tape links 2 to 10 hold their x. Backward adds dy and six temporaries of one link.
  const peak = peakBytesOf(() => {
    const chain = (): Tensor[] => {
      let t: Tensor = x;
      for (let i = 0; i < 10; i++) t = silu([t], null)[0]!;
      return [t];
    };
    tf.dispose(vjp(chain, [x], ([out]) => [tf.onesLike(out!)]).grads);
  });
  expect(peak).toBeLessThanOrEqual((9 + 7) * 4096 + 64);
  x.dispose();
  expect(tf.memory().numTensors).toBe(before.numTensors - 1);
});

test('computes an input gradient given as a function only when it is needed', () => {
  const calls: string[] = [];
  const product = defineOp<null>('product', {
    forward: ([a, b]) => ({ outputs: [tf.mul(a!, b!)], saved: [a!, b!] }),
    backward: ([dy], [a, b]) => [
      () => {
        calls.push('a');
        return tf.mul(dy!, b!);
      },
      () => {
        calls.push('b');
        return tf.mul(dy!, a!);
      },
    ],
  });
  const a = tf.tensor1d([1, 2]);
  const b = tf.tensor1d([3, 4]);
  const { grads } = vjp(
    () => product([a, b], null),
    [b],
    () => [tf.ones([2])],
  );
  expect([...grads[0]!.dataSync()]).toEqual([1, 2]);
  expect(calls).toEqual(['b']);
  tf.dispose([a, b, grads]);
});

test('gives zeros for an input declared without a gradient', () => {
  const gate = defineOp<null>('gate', {
    forward: ([a, mask]) => ({ outputs: [tf.mul(a!, mask!)], saved: [mask!] }),
    backward: ([dy], [mask]) => [tf.mul(dy!, mask!), null],
  });
  const a = tf.tensor1d([1, 2]);
  const { grads } = vjp(
    () => gate([a, tf.square(a)], null),
    [a],
    () => [tf.ones([2])],
  );
  expect([...grads[0]!.dataSync()]).toEqual([1, 4]);
  tf.dispose([a, grads]);
});

test('may return an input as its output', () => {
  const identity = defineOp<null>('identity', {
    forward: ([a]) => ({ outputs: [a!], saved: [] }),
    backward: ([dy]) => [dy!],
  });
  const a = tf.tensor1d([1, 2]);
  const { grads } = vjp(
    () => [tf.square(identity([a], null)[0]!)],
    [a],
    () => [tf.ones([2])],
  );
  expect([...grads[0]!.dataSync()]).toEqual([2, 4]);
  expect([...a.dataSync()]).toEqual([1, 2]);
  tf.dispose([a, grads]);
});

test('fails by name when backward returns the wrong number of gradients', () => {
  const wrong = defineOp<null>('wrong', {
    forward: ([a, b]) => ({ outputs: [tf.add(a!, b!)], saved: [] }),
    backward: ([dy]) => [dy!],
  });
  const a = tf.tensor1d([1, 2]);
  const run = (): unknown =>
    vjp(
      () => wrong([a, a], null),
      [a],
      () => [tf.ones([2])],
    );
  expect(run).toThrow(
    expect.objectContaining({
      code: 'INTERNAL',
      facts: { name: 'wrong', inputs: 2, gradients: 1 },
    }),
  );
  a.dispose();
});
