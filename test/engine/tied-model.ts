/**
 * @file A token model whose head reads the embedding's table, with a batch: small kernels, for tests
 * that pace what operations take.
 */
import * as tf from '@tensorflow/tfjs-core';
import type { DenseBlock, MicroBatch, Model } from '../../src/model/block.js';
import { matrixSpec, vectorSpec } from '../../src/model/block-params.js';
import { defineBlock } from '../../src/model/define-block.js';
import { defineModel } from '../../src/model/define-model.js';
import { languageModelBatch } from '../../src/model/language-model-batch.js';
import { tokenEmbedding } from '../../src/model/token-embedding.js';
import { vocabularyHead } from '../../src/model/vocabulary-head.js';

export interface TiedShape {
  readonly vocab: number;
  readonly width: number;
  /** Between embedding and head, one [width, width] each. */
  readonly blocks: number;
  readonly length: number;
}

export function tiedModel({ vocab, width, blocks }: TiedShape): Model {
  const table = matrixSpec('table', [vocab, width], 0.3);
  const scale = vectorSpec('scale', width, 'ones');
  const middle = Array.from({ length: blocks }, (_, index): DenseBlock => {
    const name = `w${index}`;
    return defineBlock({
      name: `block ${index}`,
      kindKey: 'middle',
      params: { [name]: { shape: [width, width], init: { kind: 'normal', std: width ** -0.5 } } },
      apply: (params, x) => {
        const rows = tf.reshape(x!, [x!.size / width, width]);
        return tf.reshape(tf.tanh(tf.matMul(rows, params[name] as tf.Tensor2D)), x!.shape);
      },
    });
  });
  const head = vocabularyHead({
    name: 'head',
    kind: 'scaled',
    matrix: table.name,
    vocabSize: vocab,
    hiddenSize: width,
    owns: [scale],
    normUses: [scale.name],
    norm: (params, x) => tf.mul(x, params[scale.name]!),
  });
  const embedding = tokenEmbedding({ name: 'embedding', tokens: table });
  return defineModel({ name: 'tied', blocks: [embedding, ...middle, head], seed: 1 });
}

/** Tokens that differ by `seed`. */
export function tiedBatch({ vocab, length }: TiedShape, seed = 0): MicroBatch {
  const inputIds = Array.from({ length }, (_, i) => (i * 37 + i * i + seed * 11) % vocab);
  return languageModelBatch({ inputIds, labels: inputIds, batchSize: 1, length });
}
