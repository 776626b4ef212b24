/**
 * @file The engine of a run, as its configuration says.
 */
import { createHash } from 'node:crypto';
import { resolve } from 'node:path';
import type { Logger } from '../../core/logger.js';
import { exampleBatchOf } from '../data/example-batch.js';
import { Engine } from '../engine/engine.js';
import type { Block } from '../model/block.js';
import { modelFingerprint } from '../model/model-fingerprint.js';
import type { RunPlan } from './plan-run.js';

/** Plans memory, reserves it and loads. @throws what `Engine.create` throws */
export function createEngine(plan: RunPlan, logger: Logger): Promise<Engine> {
  const { config, model, dataset, evalDataset, maxLength, initialState } = plan;
  const datasets = evalDataset === undefined ? [dataset] : [dataset, evalDataset];
  const evalBatchSize = config.perDeviceEvalBatchSize ?? 0;
  const batchSize = Math.max(
    config.perDeviceTrainBatchSize,
    evalDataset === undefined ? 0 : evalBatchSize,
  );
  return Engine.create({
    model,
    exampleBatch: exampleBatchOf(datasets, batchSize, maxLength),
    device: config.device,
    deviceMemory: config.deviceMemory,
    hostMemory: config.hostMemory,
    nvmeMemory: config.nvmeMemory,
    nvmePath: config.nvmePath,
    runId: runIdOf(model.blocks, config.outputDir),
    dtype: config.dtype,
    offloadParam: config.offloadParam.device,
    offloadOptimizer: config.offloadOptimizer.device,
    subGroupSize: config.subGroupSize,
    microBatchOrder: config.microBatchOrder,
    gradientAccumulationSteps: config.gradientAccumulationSteps,
    optimizer: {
      learningRate: config.learningRate,
      beta1: config.adamBeta1,
      beta2: config.adamBeta2,
      epsilon: config.adamEpsilon,
      weightDecay: config.weightDecay,
      maxGradNorm: config.maxGradNorm,
    },
    optimizerWorkers: config.optimizerWorkers,
    seed: config.seed,
    ...(initialState === undefined ? {} : { initialState }),
    logger,
  });
}

/** Stable name of the run's NVMe folder: the same model and output meet the same store. */
function runIdOf(blocks: readonly Block[], outputDir: string): string {
  const identity = `${modelFingerprint(blocks)}\n${resolve(outputDir)}`;
  return `spillway-${createHash('sha256').update(identity).digest('hex').slice(0, 16)}`;
}
