// Goal: the tiled head equals the plain cross-entropy over many tiles and token chunks.
import * as tf from '@tensorflow/tfjs-core';
import { describe, expect, it } from 'vitest';
import type { BlockAux, MicroBatch } from '../../src/model/block.js';
import { languageModelBatch } from '../../src/model/language-model-batch.js';
import { headTileRows, vocabularyHead } from '../../src/model/vocabulary-head.js';
import { randomTensor } from '../device/tfjs-setup.js';
import { BACKENDS, useBackend } from './backends.js';
import { runChain } from './block-chain.js';
import { relativeError } from './fixture-model.js';

const VOCAB = 70;
const WIDTH = 6;
/** More tokens than one chunk of 1024. */
const [BATCH, LENGTH] = [2, 600];

function head(tileRows: number): ReturnType<typeof vocabularyHead> {
  const block = vocabularyHead({
    name: 'head',
    kind: 'none',
    matrix: 'w',
    vocabSize: VOCAB,
    hiddenSize: WIDTH,
    owns: [],
    normUses: [],
    norm: (_params, x) => x,
  });
  return { ...block, tileRows };
}

/** An embedding that hands out the parameter `x`, so that its gradient is that of the input. */
const input = {
  kind: 'dense',
  name: 'input',
  kindKey: 'input',
  owns: [],
  uses: ['x'],
  apply: (params: Readonly<Record<string, tf.Tensor>>) => [tf.mul(params['x']!, 1)],
} as const;

function batch(): MicroBatch {
  const inputIds = Int32Array.from({ length: BATCH * LENGTH }, (_, index) => (index * 37) % VOCAB);
  const labels = inputIds.map((id, index) => (index % 5 === 0 ? -100 : id));
  return languageModelBatch({ inputIds, labels, batchSize: BATCH, length: LENGTH });
}

describe.each(BACKENDS)('on %s', (backend) => {
  useBackend(backend);

  // 70 rows in tiles of 23 leave a tile of one row.
  it.each([32, 23])('in tiles of %i rows has the losses and gradients of a softmax', (tileRows) => {
    const params = {
      x: tf.mul(randomTensor([BATCH, LENGTH, WIDTH], 1), 3),
      w: tf.mul(randomTensor([VOCAB, WIDTH], 2), 3),
    };
    const { fields } = batch();
    const result = runChain([input, head(tileRows)], params, batch(), 0.25);
    const x = params.x.dataSync();
    const w = params.w.dataSync();
    const losses = new Float64Array(BATCH * LENGTH);
    const dx = new Float64Array(x.length);
    const dw = new Float64Array(w.length);
    for (let n = 0; n < losses.length; n += 1) {
      const label = n % LENGTH === LENGTH - 1 ? -100 : fields['labels']!.data[n + 1]!;
      if (label === -100) continue;
      const logits = Array.from({ length: VOCAB }, (_, v) => {
        let dot = 0;
        for (let c = 0; c < WIDTH; c += 1) dot += x[n * WIDTH + c]! * w[v * WIDTH + c]!;
        return dot;
      });
      const largest = Math.max(...logits);
      const total = logits.reduce((sum, logit) => sum + Math.exp(logit - largest), 0);
      losses[n] = largest + Math.log(total) - logits[label]!;
      logits.forEach((logit, v) => {
        const slope = 0.25 * (Math.exp(logit - largest) / total - (v === label ? 1 : 0));
        for (let c = 0; c < WIDTH; c += 1) {
          dx[n * WIDTH + c]! += slope * w[v * WIDTH + c]!;
          dw[v * WIDTH + c]! += slope * x[n * WIDTH + c]!;
        }
      });
    }
    tf.dispose(params);
    expect(relativeError(result.losses, losses)).toBeLessThan(2e-6);
    expect(relativeError(result.gradients.get('x')!, dx)).toBeLessThan(2e-6);
    expect(relativeError(result.gradients.get('w')!, dw)).toBeLessThan(2e-6);
  });

  it('handles logits far beyond the range of exp', () => {
    const params = {
      x: tf.mul(randomTensor([BATCH, LENGTH, WIDTH], 1), 100),
      w: tf.mul(randomTensor([VOCAB, WIDTH], 2), 100),
    };
    const { losses, gradients } = runChain([input, head(VOCAB)], params, batch(), 1);
    tf.dispose(params);
    expect(losses.every((loss) => Number.isFinite(loss) && loss >= 0)).toBe(true);
    expect(Math.max(...losses)).toBeGreaterThan(1000);
    expect([...gradients.values()].every((values) => values.every(Number.isFinite))).toBe(true);
  });

  it('refuses a label outside the vocabulary and names it', () => {
    const data = Int32Array.of(1, VOCAB);
    const labels = { data, shape: [1, 2] };
    const aux: BlockAux = {
      fields: { labels, input_ids: labels },
      tensors: {},
      lossScale: 1,
      seed: 0,
      step: 0,
      microBatch: 0,
      block: 0,
    };
    const h = tf.zeros([2, WIDTH]);
    let caught: unknown;
    try {
      head(32).begin([h], aux);
    } catch (error) {
      caught = error;
    }
    h.dispose();
    expect(caught).toMatchObject({
      code: 'TOKEN_OUT_OF_RANGE',
      facts: { label: VOCAB, vocabSize: VOCAB, index: 1 },
    });
  });
});

it.each([
  [50257, 768, 1344],
  [128256, 4096, 256],
  [131, 36, 131],
  [32000, 65536, 64],
])('tiles a [%i, %i] matrix in %i rows', (vocabSize, hiddenSize, rows) => {
  expect(headTileRows(vocabSize, hiddenSize)).toBe(rows);
});
