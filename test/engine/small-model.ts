/**
 * @file A two-block model of plain tfjs functions whose steps take milliseconds.
 */
import * as tf from '@tensorflow/tfjs-core';
import type { DenseBlock, MicroBatch, Model } from '../../src/model/block.js';
import { defineModel } from '../../src/model/define-model.js';

export const WIDTH = 64;
export const ROWS = 8;

/** `hidden = tanh(x W)`, then the squared errors of `hidden V` against `y`. */
export function smallModel(
  options: {
    scaleLoss?: number;
    ignoreParams?: boolean;
    /** Adds this to W before the product, so that another kernel reads the weight. */
    shift?: number;
  } = {},
): Model {
  const weight = (name: string) => ({
    name,
    shape: [WIDTH, WIDTH],
    init: { kind: 'normal', std: 0.1 } as const,
    decay: true,
  });
  const hidden: DenseBlock = {
    kind: 'dense',
    name: 'hidden',
    kindKey: 'hidden',
    owns: [weight('w')],
    uses: ['w'],
    reads: ['x'],
    apply: (params, _inputs, aux) => {
      const w = params['w'] as tf.Tensor2D;
      const weight = options.shift === undefined ? w : tf.add<tf.Tensor2D>(w, options.shift);
      return [tf.tanh(tf.matMul(aux.tensors['x'] as tf.Tensor2D, weight))];
    },
  };
  const output: DenseBlock = {
    kind: 'dense',
    name: 'output',
    kindKey: 'output',
    owns: [weight('v')],
    uses: ['v'],
    reads: ['y'],
    apply: (params, inputs, aux) => {
      const target = aux.tensors['y'] as tf.Tensor2D;
      if (options.ignoreParams === true) return [tf.square(target)];
      const errors = tf.sub(
        tf.matMul(inputs[0] as tf.Tensor2D, params['v'] as tf.Tensor2D),
        target,
      );
      return [tf.mul(tf.square(errors), options.scaleLoss ?? 1)];
    },
  };
  return defineModel({ name: 'small', blocks: [hidden, output], seed: 3 });
}

/** Deterministic inputs and targets; `value` replaces one input. */
export function smallBatch(value?: number): MicroBatch {
  const shape = [ROWS, WIDTH];
  const x = Float32Array.from({ length: ROWS * WIDTH }, (_, i) => Math.sin(i * 0.37));
  const y = Float32Array.from({ length: ROWS * WIDTH }, (_, i) => Math.cos(i * 0.11));
  if (value !== undefined) x[5] = value;
  return { fields: { x: { data: x, shape }, y: { data: y, shape } }, weight: ROWS * WIDTH };
}
