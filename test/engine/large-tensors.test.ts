// Goal: tensors larger than a chunk, a tile and a shard keep the resident bits when offloaded.
import { expect, it } from 'vitest';
import { silentLogger } from '../../core/logger.js';
import type { EngineOptions } from '../../src/engine/engine-options.js';
import { defineModel } from '../../src/model/define-model.js';
import { languageModelBatch } from '../../src/model/language-model-batch.js';
import { modelFromConfig } from '../../src/model/model-from-config.js';
import { runSteps, withFolder, type RunRecord } from './run-engine.js';

/** The tied matrix has 12,001 x 100 elements: five chunks, two tiles, ends inside both. */
const VOCABULARY = 12_001;

type Variant = Omit<EngineOptions, 'model' | 'exampleBatch'>;

async function run(variant: Variant): Promise<RunRecord> {
  const config = {
    model_type: 'gpt2',
    vocab_size: VOCABULARY,
    n_positions: 16,
    n_embd: 100,
    n_layer: 1,
    n_head: 4,
    activation_function: 'gelu_new',
  };
  const { name, blocks } = modelFromConfig(config, { strict: false, logger: silentLogger });
  const steps = [0, 1].map((step) =>
    [0, 1].map((microBatch) => {
      const ids = Array.from(
        { length: 8 },
        (_, t) => (t * 4999 + step * 71 + microBatch) % VOCABULARY,
      );
      return languageModelBatch({ inputIds: ids, labels: ids, batchSize: 1, length: 8 });
    }),
  );
  return withFolder((nvmePath) =>
    runSteps(defineModel({ name, blocks, seed: 7 }), steps, {
      gradientAccumulationSteps: 2,
      optimizer: { learningRate: 1e-2 },
      ...(variant.offloadParam === 'nvme' ? { nvmePath } : {}),
      ...variant,
    }),
  );
}

function expectSameBits(actual: RunRecord, expected: RunRecord): void {
  expect(actual.losses).toEqual(expected.losses);
  for (const [name, weights] of Object.entries(expected.weights)) {
    const bits = new Uint8Array(weights.buffer);
    expect(Buffer.compare(new Uint8Array(actual.weights[name]!.buffer), bits), name).toBe(0);
  }
}

it.each(['float32', 'bfloat16'] as const)('in %s', async (dtype) => {
  const resident = await run({
    dtype,
    offloadParam: 'none',
    offloadOptimizer: 'none',
    deviceMemory: '128MiB',
    hostMemory: '64MiB',
  });
  const small = { dtype, deviceMemory: '14MiB', offloadParam: 'nvme' } as const;
  const offloaded: Variant[] = [
    // The matrix spans four shards of 80 leaves each.
    { ...small, hostMemory: '12MiB', offloadOptimizer: 'nvme', subGroupSize: 80 * 4096 },
    { ...small, hostMemory: '20MiB', microBatchOrder: 'horizontal', optimizerWorkers: 2 },
  ];
  for (const variant of offloaded) expectSameBits(await run(variant), resident);
});
