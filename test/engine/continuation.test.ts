// Goal: a sequence's continuation moves and holds what its plans say, and has the same bits at any pace.
import * as tf from '@tensorflow/tfjs-core';
import { describe, expect, it } from 'vitest';
import { isCoded } from '../../core/errors.js';
import { silentLogger } from '../../core/logger.js';
import { LINKS, type Link } from '../../core/types.js';
import { InferenceEngine } from '../../src/engine/inference-engine.js';
import type { InferenceOptions } from '../../src/engine/inference-options.js';
import type { Throttles } from '../../src/engine/link-turns.js';
import type { Model } from '../../src/model/block.js';
import { matrixSpec, vectorSpec } from '../../src/model/block-params.js';
import { defineBlock } from '../../src/model/define-block.js';
import { defineModel } from '../../src/model/define-model.js';
import { modelFromConfig } from '../../src/model/model-from-config.js';
import { tokenEmbedding } from '../../src/model/token-embedding.js';
import { vocabularyHead } from '../../src/model/vocabulary-head.js';
import type { Operation } from '../../src/plan/step-plan.js';
import { withFolder } from './run-engine.js';

const VOCAB = 300;

function model(tied: boolean) {
  const config = {
    model_type: 'gpt2',
    vocab_size: VOCAB,
    n_positions: 64,
    n_embd: 64,
    n_layer: 3,
    n_head: 4,
    tie_word_embeddings: tied,
  };
  const { blocks } = modelFromConfig(config, { strict: false, logger: silentLogger });
  return defineModel({ name: 'sequence', blocks, seed: 4 });
}

/** As many tokens at once with tokens before them as without. */
const PARTS = [[3, 250, 17, 17, 42], [299], [0], [5, 6], [250, 8, 1, 42, 9]] as const;

interface Run {
  readonly rows: readonly Float32Array[];
  readonly moved: Readonly<Record<Link, number>>;
  readonly planned: Readonly<Record<Link, number>>;
  readonly cacheTiers: readonly string[];
}

async function run(options: Partial<InferenceOptions>, throttles: Throttles = {}): Promise<Run> {
  const operations = new Set<Operation>();
  const engine = await InferenceEngine.create({
    model: model(true),
    device: 'native',
    maxLength: 16,
    hostMemory: 2 ** 27,
    subGroupSize: 4096,
    ...options,
    execution: { throttles, onSpan: ({ operation }) => operations.add(operation) },
  });
  try {
    const before = engine.bytesMoved;
    const rows: Float32Array[] = [];
    const planned = { upload: 0, download: 0, nvme_read: 0, nvme_write: 0 };
    for (const part of PARTS) {
      operations.clear();
      rows.push((await engine.append(part)).slice());
      for (const { bytes } of operations) {
        for (const link of LINKS) planned[link] += bytes[link] ?? 0;
      }
    }
    const after = engine.bytesMoved;
    const moved = { ...planned };
    for (const link of LINKS) moved[link] = after[link] - before[link];
    return { rows, moved, planned, cacheTiers: engine.plan.cacheTiers };
  } finally {
    await engine.close();
  }
}

/** The smallest device memory that works. */
async function least(options: Partial<InferenceOptions>): Promise<number> {
  const facts = await run({ ...options, deviceMemory: 1 }).then(
    () => undefined,
    (error: unknown) => (isCoded(error) ? error.facts : undefined),
  );
  return Number(facts?.['neededDeviceBytes']);
}

describe.each([
  { dtype: 'float32', tied: true },
  { dtype: 'float32', tied: false },
  { dtype: 'bfloat16', tied: true },
] as const)('in $dtype, tied: $tied', ({ dtype, tied }) => {
  it('moves what its plans say, wherever weights and caches live', async () => {
    await withFolder(async (nvmePath) => {
      const common = { dtype, model: model(tied), nvmePath };
      const resident = await run({ ...common, offloadParam: 'none' });
      expect(resident.moved).toEqual(resident.planned);
      expect(resident.moved.nvme_read).toBe(0);
      for (const offloadParam of ['cpu', 'nvme'] as const) {
        const options = { ...common, offloadParam };
        const far = await run({ ...options, deviceMemory: await least(options) });
        expect(far.cacheTiers).toContain('host');
        expect(far.rows).toEqual(resident.rows);
        expect(far.moved).toEqual(far.planned);
        expect(far.moved.nvme_read > 0).toBe(offloadParam === 'nvme');
      }
    });
  });
});

it('has the same bits when links are slow, each in its turn', async () => {
  await withFolder(async (nvmePath) => {
    const wished = { nvmePath, offloadParam: 'nvme' } as const;
    const options = { ...wished, deviceMemory: await least(wished) };
    const { rows } = await run(options);
    for (const link of LINKS) {
      expect((await run(options, { [link]: 2e7 })).rows).toEqual(rows);
    }
  });
});

/** A block that keeps far more of each token than it computes with. */
function keepingModel(): Model {
  const width = 64;
  const table = matrixSpec('table', [40, width], 0.3);
  const scale = vectorSpec('scale', width, 'ones');
  const keeping = defineBlock({
    name: 'keeping',
    params: { unused: { shape: [1, 1] } },
    apply: (_, x) => tf.neg(x!),
    extend: (_, [x]) => ({ output: tf.neg(x!), added: [tf.fill([x!.shape[1]!, 4096], 0.5)] }),
  });
  const head = vocabularyHead({
    name: 'head',
    kind: 'scaled',
    matrix: table.name,
    vocabSize: 40,
    hiddenSize: width,
    owns: [scale],
    normUses: [scale.name],
    norm: (params, x) => tf.mul(tf.mul(tf.neg(x), tf.exp(x)), params[scale.name]!),
  });
  const embedding = tokenEmbedding({ name: 'embedding', tokens: table });
  return defineModel({ name: 'keeping', blocks: [embedding, keeping, head], seed: 1 });
}

it.each([
  ['blocks in float32', { model: model(true), dtype: 'float32', maxLength: 16 }],
  ['blocks in bfloat16', { model: model(true), dtype: 'bfloat16', maxLength: 16 }],
  ['a head behind a block that keeps much', { model: keepingModel(), maxLength: 1 }],
] as const)('holds in its largest part what its plan says, with %s', async (_, some) => {
  const options = { device: 'native', hostMemory: 2 ** 26, offloadParam: 'cpu', ...some } as const;
  const engine = await InferenceEngine.create({ ...options, deviceMemory: await least(options) });
  try {
    await engine.append(Array.from({ length: some.maxLength }, (_, index) => index));
    expect(engine.peakBytes.device).toBe(engine.plan.peakBytes.device);
  } finally {
    await engine.close();
  }
});
