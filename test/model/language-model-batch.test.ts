// Goal: token batches count their loss terms as Hugging Face does, and embeddings read their rows.
import * as tf from '@tensorflow/tfjs-core';
import fc from 'fast-check';
import { expect, it } from 'vitest';
import { hasCode } from '../../core/errors.js';
import type { BlockAux } from '../../src/model/block.js';
import { matrixSpec } from '../../src/model/block-params.js';
import { languageModelBatch } from '../../src/model/language-model-batch.js';
import { tokenEmbedding } from '../../src/model/token-embedding.js';
import { useCpuBackend } from '../device/tfjs-setup.js';

useCpuBackend();

it('weighs a batch by its unmasked labels beyond the first position', () => {
  const sizes = fc.tuple(fc.integer({ min: 1, max: 4 }), fc.integer({ min: 1, max: 6 }));
  const cases = sizes.chain(([batchSize, length]) =>
    fc.record({
      batchSize: fc.constant(batchSize),
      length: fc.constant(length),
      labels: fc.array(fc.constantFrom(-100, 0, 3), {
        minLength: batchSize * length,
        maxLength: batchSize * length,
      }),
    }),
  );
  fc.assert(
    fc.property(cases, ({ batchSize, length, labels }) => {
      const batch = languageModelBatch({
        inputIds: labels.map(() => 1),
        labels,
        batchSize,
        length,
      });
      const terms = labels.filter((label, index) => label !== -100 && index % length > 0);
      expect(batch.weight).toBe(terms.length);
      expect(batch.fields['labels']!.shape).toEqual([batchSize, length]);
    }),
  );
});

it('copies its arrays', () => {
  const ids = Int32Array.of(1, 2);
  const batch = languageModelBatch({ inputIds: ids, labels: ids, batchSize: 1, length: 2 });
  ids.fill(9);
  expect([...batch.fields['input_ids']!.data]).toEqual([1, 2]);
});

it.each([
  ['too few ids', [1, 2, 3], [1, 2, 3, 4]],
  ['too few labels', [1, 2, 3, 4], [1, 2, 3]],
  ['a fractional id', [1, 2.5, 3, 4], [1, 2, 3, 4]],
  ['an id beyond int32', [1, 2 ** 40, 3, 4], [1, 2, 3, 4]],
])('refuses %s', (_title, inputIds, labels) => {
  try {
    languageModelBatch({ inputIds, labels, batchSize: 2, length: 2 });
    expect.unreachable();
  } catch (error) {
    expect(hasCode(error, 'DATA_INVALID')).toBe(true);
  }
});

const embedding = tokenEmbedding({
  name: 'embedding',
  tokens: matrixSpec('wte', [9, 2], 1),
  positions: matrixSpec('wpe', [3, 2], 1),
});

function auxOf(inputIds: number[], batchSize: number): BlockAux {
  const length = inputIds.length / batchSize;
  const { fields } = languageModelBatch({ inputIds, labels: inputIds, batchSize, length });
  return { fields, tensors: {}, lossScale: 1, seed: 0, step: 0, microBatch: 0, block: 0 };
}

it('gathers one token row per position and each position once', () => {
  const { fields } = auxOf([4, 8, 0, 4], 2);
  expect(embedding.gathers.map((gather) => [...gather.indices(fields)])).toEqual([
    [4, 8, 0, 4],
    [0, 1],
  ]);
});

it('adds positions to tokens, and sums their gradients over the batch', () => {
  const aux = auxOf([4, 8, 0, 4], 2);
  tf.tidy(() => {
    const tokens = tf.tensor2d([1, 2, 3, 4, 5, 6, 7, 8], [4, 2]);
    const positions = tf.tensor2d([10, 20, 30, 40], [2, 2]);
    const [y] = embedding.apply([tokens, positions], aux);
    expect(y!.shape).toEqual([2, 2, 2]);
    expect([...y!.dataSync()]).toEqual([11, 22, 33, 44, 15, 26, 37, 48]);
    const dy = tf.tensor3d([1, 2, 3, 4, 5, 6, 7, 8], [2, 2, 2]);
    const [dTokens, dPositions] = embedding.backward(dy, aux);
    expect([...dTokens!.dataSync()]).toEqual([1, 2, 3, 4, 5, 6, 7, 8]);
    expect([...dPositions!.dataSync()]).toEqual([6, 8, 10, 12]);
  });
});

it('refuses a sequence longer than the position table', () => {
  const { fields } = auxOf([1, 2, 3, 4], 1);
  expect(() => embedding.gathers[1]!.indices(fields)).toThrow(
    expect.objectContaining({ code: 'DATA_INVALID', facts: { length: 4, positions: 3 } }),
  );
});
