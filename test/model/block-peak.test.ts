// Goal: a decoder layer's forward and reverse passes stay below a stated formula of memory.
import * as tf from '@tensorflow/tfjs-core';
import type { Tensor } from '@tensorflow/tfjs-core';
import { expect, it } from 'vitest';
import { silentLogger } from '../../core/logger.js';
import type { BlockAux, DenseBlock } from '../../src/model/block.js';
import { modelFromConfig } from '../../src/model/model-from-config.js';
import { vjp } from '../../tiers/device/tape.js';
import { peakBytesOf, randomTensor, useCpuBackend } from '../device/tfjs-setup.js';

const AUX: BlockAux = {
  fields: {},
  tensors: {},
  lossScale: 1,
  seed: 0,
  step: 0,
  microBatch: 0,
  block: 1,
};

useCpuBackend();

interface Sizes {
  readonly C: number;
  readonly H: number;
  readonly B: number;
  readonly T: number;
}

function decoderLayer(type: string, { C, H }: Sizes): DenseBlock {
  const config =
    type === 'gpt2'
      ? { vocab_size: 8, n_positions: 256, n_embd: C, n_layer: 1, n_head: H }
      : {
          vocab_size: 8,
          hidden_size: C,
          intermediate_size: 4 * C,
          num_hidden_layers: 1,
          num_attention_heads: H,
        };
  const options = { strict: true, logger: silentLogger };
  return modelFromConfig({ model_type: type, ...config }, options).blocks[1] as DenseBlock;
}

/**
 * Bytes beyond input, parameters and dy: 12 activations of width C, and the larger of attention's
 * three score matrices of 128 query rows and the feed-forward's five activations of width 4C.
 */
function activationBytes({ C, H, B, T }: Sizes): number {
  const scores = B * H * Math.min(T, 128) * T;
  return 4 * (B * T * 12 * C + Math.max(3 * scores, 5 * B * T * 4 * C));
}

const SIZES: readonly Sizes[] = [
  { C: 32, H: 4, B: 2, T: 64 },
  { C: 64, H: 2, B: 2, T: 48 },
  { C: 16, H: 2, B: 1, T: 256 },
];

it.each(['gpt2', 'llama'].flatMap((type) => SIZES.map((sizes) => ({ type, ...sizes }))))(
  'a $type layer with C=$C, H=$H, B=$B, T=$T stays within it',
  ({ type, ...sizes }) => {
    const block = decoderLayer(type, sizes);
    const params: Record<string, Tensor> = {};
    for (const { name, shape } of block.owns) params[name] = randomTensor([...shape], 1);
    const [x, dy] = [2, 3].map((seed) => randomTensor([sizes.B, sizes.T, sizes.C], seed));
    const apply = (): Tensor[] => block.apply(params, [x!], AUX);
    const forwardBytes = peakBytesOf(() => tf.dispose(tf.tidy(apply)));
    const reverseBytes = peakBytesOf(() => {
      const { grads } = vjp(apply, [x!, ...Object.values(params)], () => [tf.clone(dy!)]);
      tf.dispose(grads);
    });
    const parameterBytes = Object.values(params).reduce((total, { size }) => total + 4 * size, 0);
    tf.dispose([params, x!, dy!]);
    expect(forwardBytes).toBeLessThan(activationBytes(sizes));
    expect(reverseBytes).toBeLessThan(activationBytes(sizes) + parameterBytes);
    // The gradients of all parameters live at the end: the meter sees at least these.
    expect(reverseBytes).toBeGreaterThan(parameterBytes);
  },
);
