/**
 * @file Small random models and batches for the property tests: built-in ones, token models whose
 * table is read by several blocks, and chains of plain tfjs functions of changing widths.
 */
import * as tf from '@tensorflow/tfjs-core';
import type { Tensor } from '@tensorflow/tfjs-core';
import fc from 'fast-check';
import { silentLogger } from '../../core/logger.js';
import type { Block, DenseBlock, MicroBatch, Model, ParamSpec } from '../../src/model/block.js';
import { matrixSpec, vectorSpec } from '../../src/model/block-params.js';
import { defineBlock } from '../../src/model/define-block.js';
import { defineModel } from '../../src/model/define-model.js';
import { languageModelBatch } from '../../src/model/language-model-batch.js';
import { modelFromConfig } from '../../src/model/model-from-config.js';
import { tokenEmbedding } from '../../src/model/token-embedding.js';
import { vocabularyHead } from '../../src/model/vocabulary-head.js';

/** A model and the shapes of its batches. */
export interface RandomModel {
  readonly kind: 'gpt2' | 'llama' | 'qwen2' | 'qwen3' | 'phi3' | 'tokens' | 'plain';
  readonly vocab: number;
  readonly heads: number;
  readonly headWidth: number;
  readonly inner: number;
  readonly tied: boolean;
  /** Of each block between first and last: what it computes (`tokens`), its width (`plain`). */
  readonly middle: readonly { readonly op: MiddleOp; readonly width: number }[];
  /** Rows per tile of the head of a `tokens` model. */
  readonly tileRows: number;
  /** Parameter i is frozen when bit i mod 30 is set. */
  readonly frozen: number;
  /** Largest batch and sequence. */
  readonly batchSize: number;
  readonly length: number;
  /** Whether rows hold two documents, where they are long enough; not of a `plain` model. */
  readonly packed: boolean;
}

type MiddleOp = 'linear' | 'shared' | 'table' | 'shape';

export const randomModel: fc.Arbitrary<RandomModel> = fc.record({
  kind: fc.constantFrom(
    'gpt2',
    'llama',
    'qwen2',
    'qwen3',
    'phi3',
    'tokens',
    'tokens',
    'plain',
    'plain',
  ),
  vocab: fc.integer({ min: 3, max: 150 }),
  heads: fc.integer({ min: 1, max: 3 }),
  headWidth: fc.integer({ min: 1, max: 6 }).map((half) => 2 * half),
  inner: fc.integer({ min: 1, max: 40 }),
  tied: fc.boolean(),
  middle: fc.array(
    fc.record({
      op: fc.constantFrom('linear', 'shared', 'table', 'shape'),
      width: fc.integer({ min: 1, max: 90 }),
    }),
    { maxLength: 3 },
  ),
  tileRows: fc.integer({ min: 1, max: 150 }),
  frozen: fc.oneof(fc.constant(0), fc.integer({ min: 0, max: 2 ** 30 - 1 })),
  batchSize: fc.integer({ min: 1, max: 3 }),
  length: fc.integer({ min: 2, max: 9 }),
  packed: fc.boolean(),
});

/** The model, with seeded weights. */
export function buildModel(random: RandomModel): Model {
  const blocks = freeze(blocksOf(random), random.frozen);
  return defineModel({ name: `random ${random.kind}`, blocks, seed: 5 });
}

/** A batch of `batchSize` x `length` positions (rows of a `plain` model) with values of `seed`. */
export function buildBatch(
  random: RandomModel,
  batchSize: number,
  length: number,
  seed: number,
): MicroBatch {
  const count = batchSize * length;
  if (random.kind === 'plain') {
    const shape = [count, PLAIN_WIDTH];
    const data = Float32Array.from({ length: count * PLAIN_WIDTH }, (_, i) =>
      Math.sin(i * 0.37 + seed),
    );
    return { fields: { x: { data, shape } }, weight: count };
  }
  const inputIds = Array.from({ length: count }, (_, i) => (i * 7 + i * i + seed) % random.vocab);
  const labels = inputIds.map((id, i) => ((i + seed) % 5 === 3 && i > 1 ? -100 : id));
  const places = inputIds.map((_, i) => i % length);
  const second = Math.ceil(length / 2) + 1;
  return languageModelBatch({
    inputIds,
    labels,
    batchSize,
    length,
    ...(random.packed && {
      documents: places.map((place) => (place < second ? 0 : 1)),
      positionIds: places.map((place) => (place < second ? place : place - second)),
    }),
  });
}

const PLAIN_WIDTH = 5;

function blocksOf(random: RandomModel): readonly Block[] {
  const { heads, headWidth, inner, vocab, tied, middle, length } = random;
  switch (random.kind) {
    case 'gpt2':
      return modelFromConfig(
        {
          model_type: 'gpt2',
          vocab_size: vocab,
          n_positions: length + 1,
          n_embd: heads * headWidth,
          n_layer: 1 + middle.length,
          n_head: heads,
          n_inner: inner,
          tie_word_embeddings: tied,
        },
        { strict: true, logger: silentLogger },
      ).blocks;
    case 'llama':
    case 'qwen2':
    case 'qwen3':
    case 'phi3':
      return modelFromConfig(
        {
          model_type: random.kind,
          vocab_size: vocab,
          hidden_size: heads * headWidth,
          intermediate_size: inner,
          num_hidden_layers: 1 + middle.length,
          num_attention_heads: heads,
          num_key_value_heads: 1,
          head_dim: headWidth,
          max_position_embeddings: length,
          tie_word_embeddings: tied,
        },
        { strict: true, logger: silentLogger },
      ).blocks;
    case 'tokens':
      return tokenBlocks(random);
    case 'plain':
      return plainBlocks(random);
  }
}

/** Embedding, mixers that may share a matrix or read the token table, tiled head. */
function tokenBlocks(random: RandomModel): Block[] {
  const { vocab, tied, middle, tileRows, length } = random;
  const width = random.heads * random.headWidth;
  const table = matrixSpec('table', [vocab, width], 0.3);
  const positions = matrixSpec('positions', [length + 2, width], 0.1);
  const embedding = tokenEmbedding({
    name: 'embedding',
    tokens: table,
    ...(random.heads === 2 ? {} : { positions }),
  });
  const sharedOwner = middle.findIndex(({ op }) => op === 'shared');
  const mixers = middle.map(({ op }, index): DenseBlock => {
    const rows = (x: Tensor): tf.Tensor2D => tf.reshape(x, [x.size / width, width]);
    const mixed = (x: Tensor, y: Tensor): Tensor => tf.add(x, tf.reshape(y, x.shape));
    if (op === 'table') {
      // The whole table on the device: x + tanh(x Tᵀ) T.
      return defineBlock({
        name: `mixer ${index}`,
        params: {},
        shares: ['table'],
        apply: (params, x) => {
          const matrix = params['table'] as tf.Tensor2D;
          return mixed(x!, tf.matMul(tf.tanh(tf.matMul(rows(x!), matrix, false, true)), matrix));
        },
      });
    }
    if (op === 'shape') {
      return defineBlock({
        name: `mixer ${index}`,
        params: {},
        apply: (_, x) => tf.reshape(x!, x!.shape),
      });
    }
    const own = op === 'shared' ? 'shared' : `own ${index}`;
    const owns = op === 'linear' || index === sharedOwner;
    return defineBlock({
      name: `mixer ${index}`,
      params: owns ? { [own]: { shape: [width, width] } } : {},
      shares: owns ? [] : [own],
      apply: (params, x) => mixed(x!, tf.tanh(tf.matMul(rows(x!), params[own] as tf.Tensor2D))),
    });
  });
  const scale = vectorSpec('scale', width, 'ones');
  const own = matrixSpec('head', [vocab, width], 0.3);
  // Without a norm the input itself goes into the tiles.
  const isScaled = random.heads !== 3;
  const head = vocabularyHead({
    name: 'head',
    kind: isScaled ? 'scaled' : 'plain',
    matrix: tied ? table.name : own.name,
    vocabSize: vocab,
    hiddenSize: width,
    owns: [...(isScaled ? [scale] : []), ...(tied ? [] : [own])],
    normUses: isScaled ? [scale.name] : [],
    norm: (params, x) => (isScaled ? tf.mul(x, params[scale.name]!) : x),
  });
  return [embedding, ...mixers, { ...head, tileRows: Math.min(tileRows, vocab) }];
}

/** Dense blocks of changing widths; the last one gives a loss per row or per element. */
function plainBlocks(random: RandomModel): Block[] {
  const { middle, inner } = random;
  const blocks: Block[] = [];
  let width = PLAIN_WIDTH;
  let square: { name: string; width: number } | undefined;
  for (const [index, one] of middle.entries()) {
    const isFirst = index === 0;
    const from = width;
    const input = (x: Tensor | undefined, tensors: Readonly<Record<string, Tensor>>): Tensor =>
      isFirst ? tensors['x']! : x!;
    const reads = isFirst ? ['x'] : [];
    const name = `block ${index}`;
    if (one.op === 'shared' && square?.width === from) {
      const matrix = square.name;
      blocks.push(
        defineBlock({
          name,
          params: {},
          shares: [matrix],
          reads,
          apply: (params, x, aux) =>
            tf.tanh(tf.matMul(input(x, aux.tensors), params[matrix] as tf.Tensor)),
        }),
      );
      continue;
    }
    const to = one.op === 'linear' ? one.width : from;
    if (to === from) square ??= { name: `matrix ${index}`, width: from };
    width = to;
    blocks.push(
      defineBlock({
        name,
        params: { [`matrix ${index}`]: { shape: [from, to] }, [`bias ${index}`]: { shape: [to] } },
        reads,
        apply: (params, x, aux) => {
          const product = tf.matMul(input(x, aux.tensors), params[`matrix ${index}`] as tf.Tensor);
          return tf.tanh(tf.add(product, params[`bias ${index}`]!));
        },
      }),
    );
  }
  const isFirst = middle.length === 0;
  blocks.push(
    defineBlock({
      name: 'loss',
      params: { target: { shape: [width, inner], init: { kind: 'normal', std: 0.4 } } },
      reads: isFirst ? ['x'] : [],
      apply: (params, x, aux) => {
        const errors = tf.sub(tf.matMul(isFirst ? aux.tensors['x']! : x!, params['target']!), 0.5);
        const squares = tf.square(errors);
        return random.tied ? tf.mean(squares, 1) : squares;
      },
    }),
  );
  return blocks;
}

function freeze(blocks: readonly Block[], frozen: number): Block[] {
  let count = 0;
  const mark = (spec: ParamSpec): ParamSpec => {
    const bit = (frozen >> (count % 30)) & 1;
    count += 1;
    return bit === 1 ? { ...spec, trainable: false } : spec;
  };
  const marked = blocks.map((block): Block => ({ ...block, owns: block.owns.map(mark) }));
  // A model needs something to train.
  if (marked.some(({ owns }) => owns.some(({ trainable }) => trainable !== false))) return marked;
  return [...blocks];
}
