/**
 * @file The engine of a run, as its configuration says.
 */
import { createHash } from 'node:crypto';
import { resolve } from 'node:path';
import type { Logger } from '../../core/logger.js';
import { exampleBatchOf } from '../data/example-batch.js';
import { Engine } from '../engine/engine.js';
import type { ExecutionOptions } from '../engine/engine-options.js';
import type { Block } from '../model/block.js';
import { modelFingerprint } from '../model/model-fingerprint.js';
import { engineOptionsOf, largestBatchSize } from './engine-options-of.js';
import type { RunPlan } from './plan-run.js';

/**
 * Plans memory, reserves it and loads.
 *
 * @param execution how steps are watched
 * @throws what `Engine.create` throws
 */
export function createEngine(
  plan: RunPlan,
  logger: Logger,
  execution: ExecutionOptions,
): Promise<Engine> {
  const { config, model, dataset, evalDataset, lengthLimits, initialState } = plan;
  const datasets = evalDataset === undefined ? [dataset] : [dataset, evalDataset];
  const options = engineOptionsOf(config);
  return Engine.create({
    ...options,
    model,
    exampleBatch: exampleBatchOf(datasets, largestBatchSize(config), lengthLimits),
    runId: runIdOf(model.blocks, config.outputDir),
    ...(initialState === undefined ? {} : { initialState }),
    logger,
    execution: { ...options.execution, ...execution },
  });
}

/** Stable name of the run's NVMe folder: the same model and output meet the same store. */
function runIdOf(blocks: readonly Block[], outputDir: string): string {
  const identity = `${modelFingerprint(blocks)}\n${resolve(outputDir)}`;
  return `spillway-${createHash('sha256').update(identity).digest('hex').slice(0, 16)}`;
}
