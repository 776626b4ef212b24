// Goal: of tables on NVMe an evaluation reads the chunks that its plan says, each once, whatever rows
// its tokens want and however the tables are cut.
import { describe, expect, it } from 'vitest';
import { silentLogger } from '../../core/logger.js';
import { CHUNK_ELEMENTS } from '../../core/types.js';
import { InferenceEngine } from '../../src/engine/inference-engine.js';
import { defineModel } from '../../src/model/define-model.js';
import { languageModelBatch } from '../../src/model/language-model-batch.js';
import { modelFromConfig } from '../../src/model/model-from-config.js';
import { bytesPerLink } from '../../src/plan/step-plan.js';
import { withFolder } from './run-engine.js';

/** Chunks are no whole number of rows, and the table is several of them. */
const WIDTH = 96;
const VOCAB = 9000;
/** A row that lies in two chunks of a table that is one shard. */
const SPLIT = Math.floor(CHUNK_ELEMENTS / WIDTH);

const TOKENS: readonly (readonly number[])[] = [
  [0, 0],
  [SPLIT, SPLIT],
  [SPLIT - 1, SPLIT + 1],
  [SPLIT + 1, SPLIT],
  [VOCAB - 1, 0, 2 * SPLIT + 1, SPLIT],
  [3 * SPLIT + 1, 3 * SPLIT + 2, VOCAB - 1, 5, 4096, 42, 43, 85],
];

function model() {
  const config = {
    model_type: 'gpt2',
    vocab_size: VOCAB,
    n_positions: 8,
    n_embd: WIDTH,
    n_layer: 1,
    n_head: 4,
    tie_word_embeddings: false,
  };
  const { blocks } = modelFromConfig(config, { strict: false, logger: silentLogger });
  return defineModel({ name: 'tables', blocks, seed: 4 });
}

const batchOf = (ids: readonly number[]) =>
  languageModelBatch({ inputIds: ids, labels: ids, batchSize: 1, length: ids.length });

describe.each(['float32', 'bfloat16'] as const)('rows in %s', (dtype) => {
  it.each([
    ['one shard', 4 * CHUNK_ELEMENTS],
    ['shards of more than a chunk', CHUNK_ELEMENTS + 4096],
    ['many shards', 5 * 4096],
  ] as const)('are read as planned, of %s', async (_, subGroupSize) => {
    await withFolder(async (nvmePath) => {
      const engine = await InferenceEngine.create({
        model: model(),
        exampleBatch: batchOf(Array.from({ length: 8 }, () => 0)),
        nvmePath,
        offloadParam: 'nvme',
        dtype,
        subGroupSize,
        hostMemory: 2 ** 26,
        deviceMemory: 2 ** 26,
      });
      try {
        for (const batch of TOKENS.map(batchOf)) {
          const before = engine.bytesMoved.nvme_read;
          const planned = bytesPerLink(engine.evaluationPlan([batch])).nvme_read;
          await engine.evaluate([batch]);
          expect(engine.bytesMoved.nvme_read - before).toBe(planned);
        }
      } finally {
        await engine.close();
      }
    });
  });
});
