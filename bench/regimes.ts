/**
 * @file What benchmarks of training steps share: a GPT-2-small-sized model over 128 tokens, and the
 * three places for its states: all on the device, on the host, on NVMe.
 */
import { silentLogger } from '../core/logger.js';
import type { EngineOptions } from '../src/engine/engine-options.js';
import type { MicroBatch, Model } from '../src/model/block.js';
import { defineModel } from '../src/model/define-model.js';
import { languageModelBatch } from '../src/model/language-model-batch.js';
import { modelFromConfig } from '../src/model/model-from-config.js';

const GPT2_SMALL = {
  model_type: 'gpt2',
  vocab_size: 50_257,
  n_positions: 1024,
  n_embd: 768,
  n_layer: 12,
  n_head: 12,
};

/** Tokens of a step. */
export const LENGTH = 128;

/** Homes and budgets of a run. */
export type Regime = Pick<
  EngineOptions,
  'offloadParam' | 'offloadOptimizer' | 'deviceMemory' | 'hostMemory'
>;

export const REGIMES: Readonly<Record<'resident' | 'host' | 'nvme', Regime>> = {
  resident: {
    offloadParam: 'none',
    offloadOptimizer: 'none',
    deviceMemory: '4GiB',
    hostMemory: '256MiB',
  },
  host: {
    offloadParam: 'cpu',
    offloadOptimizer: 'cpu',
    deviceMemory: '512MiB',
    hostMemory: '3GiB',
  },
  nvme: {
    offloadParam: 'nvme',
    offloadOptimizer: 'nvme',
    deviceMemory: '512MiB',
    hostMemory: '1GiB',
  },
};

/** The model, with weights as its initialiser gives them. */
export function gpt2Small(): Model {
  const { blocks } = modelFromConfig(GPT2_SMALL, { strict: true, logger: silentLogger });
  return defineModel({ name: 'gpt2-small', blocks });
}

/** One row of tokens, no two neighbours alike. */
export function tokenBatch(length: number = LENGTH): MicroBatch {
  const inputIds = Array.from({ length }, (_, i) => (i * 7919 + 13) % GPT2_SMALL.vocab_size);
  return languageModelBatch({ inputIds, labels: inputIds, batchSize: 1, length });
}
