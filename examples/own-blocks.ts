/**
 * @file Trains a chain of your own tfjs functions with weights, gradients and AdamW states in files.
 *
 * The model is a residual network that learns y = sin(3 x0) + x1 x2 from samples. Its training
 * state is larger than the device and host budgets together, so most of it lives below `nvmePath`.
 * Prints one JSON line per logged step and one at the end.
 *
 * Run: node --import tsx examples/own-blocks.ts
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import * as tf from '@tensorflow/tfjs-core';
import { Engine, defineBlock, defineModel, type MicroBatch } from 'spillway';

/** Width of the network, hidden blocks, samples per step, steps. */
const C = 256;
const BLOCK_COUNT = 7;
const BATCH_SIZE = 16;
const STEP_COUNT = 25;
const INPUT_LENGTH = 3;

// The first block has no input; it reads a field of the batch.
const stem = defineBlock({
  name: 'stem',
  params: {
    'stem.weight': { shape: [INPUT_LENGTH, C], init: { kind: 'normal', std: 1 } },
    'stem.bias': { shape: [C], init: { kind: 'normal', std: 1 } },
  },
  reads: ['x'],
  apply: (params, _input, { tensors }) =>
    tf.tanh(tf.add(tf.matMul(tensors['x']!, params['stem.weight']!), params['stem.bias']!)),
});

// Blocks that compute alike share a kindKey, so that the engine measures one of them only.
const hidden = Array.from({ length: BLOCK_COUNT }, (_, index) => {
  const [weight, bias] = [`hidden.${index}.weight`, `hidden.${index}.bias`];
  return defineBlock({
    name: `hidden.${index}`,
    kindKey: 'hidden',
    params: {
      [weight]: { shape: [C, C], init: { kind: 'normal', std: 0.5 / Math.sqrt(C) } },
      [bias]: { shape: [C] },
    },
    apply: (params, input) =>
      tf.add(input!, tf.tanh(tf.add(tf.matMul(input!, params[weight]!), params[bias]!))),
  });
});

// The last block returns one loss per sample.
const head = defineBlock({
  name: 'head',
  params: {
    'head.weight': { shape: [C, 1], init: { kind: 'zeros' } },
    'head.bias': { shape: [1] },
  },
  reads: ['y'],
  apply: (params, input, { tensors }) => {
    const predicted = tf.add(tf.matMul(input!, params['head.weight']!), params['head.bias']!);
    return tf.square(tf.sub(predicted, tensors['y']!));
  },
});

/** Samples from a small generator of pseudo-random numbers, so that every run is the same. */
function makeBatch(seed: number): MicroBatch {
  let state = seed;
  const random = (): number => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 31 - 1;
  };
  const x = Float32Array.from({ length: BATCH_SIZE * INPUT_LENGTH }, random);
  const y = new Float32Array(BATCH_SIZE);
  for (let i = 0; i < BATCH_SIZE; i += 1) {
    const [x0 = 0, x1 = 0, x2 = 0] = x.subarray(i * INPUT_LENGTH);
    y[i] = Math.sin(3 * x0) + x1 * x2;
  }
  return {
    fields: {
      x: { data: x, shape: [BATCH_SIZE, INPUT_LENGTH] },
      y: { data: y, shape: [BATCH_SIZE, 1] },
    },
    // Loss terms in this micro-batch; the step's loss is the mean over all of them.
    weight: BATCH_SIZE,
  };
}

const nvmePath = mkdtempSync(join(tmpdir(), 'spillway-own-blocks-'));
const engine = await Engine.create({
  model: defineModel({ name: 'residual-mlp', blocks: [stem, ...hidden, head], seed: 1 }),
  exampleBatch: makeBatch(1),
  deviceMemory: '1MiB',
  hostMemory: '5MiB',
  nvmePath,
  subGroupSize: 16_384,
  optimizer: { learningRate: 1e-3, weightDecay: 0.01 },
});
try {
  const heldOut = [makeBatch(1_000), makeBatch(2_000)];
  const before = await engine.evaluate(heldOut);
  for (let step = 1; step <= STEP_COUNT; step += 1) {
    const { loss, gradNorm } = await engine.step([makeBatch(step)]);
    if (step % 5 === 0) console.log(JSON.stringify({ step, loss, gradNorm }));
  }
  const after = await engine.evaluate(heldOut);
  const { stateBytes, peakBytes, budgetBytes, bytesMoved } = engine;
  console.log(
    JSON.stringify({
      lossBefore: before.loss,
      lossAfter: after.loss,
      stateBytes,
      peakBytes,
      budgetBytes,
      bytesMoved,
    }),
  );
} finally {
  await engine.close();
  rmSync(nvmePath, { recursive: true });
}
