/**
 * @file A configuration's keys as an engine's options: one table for runs and for plans of runs.
 */
import type { TrainConfig } from '../config/train-config.js';
import type { EngineOptions } from '../engine/engine-options.js';
import type { InferenceOptions } from '../engine/inference-options.js';
import type { Throttles } from '../engine/link-turns.js';

/** The options of engines of all kinds. */
export function resourceOptionsOf(config: TrainConfig) {
  return {
    device: config.device,
    deviceMemory: config.deviceMemory,
    hostMemory: config.hostMemory,
    nvmeMemory: config.nvmeMemory,
    nvmePath: config.nvmePath,
    dtype: config.dtype,
    offloadParam: config.offloadParam.device,
    subGroupSize: config.subGroupSize,
    seed: config.seed,
  } satisfies Partial<EngineOptions> & Partial<InferenceOptions>;
}

/** Every option of a training engine that the configuration decides. */
export function engineOptionsOf(config: TrainConfig) {
  return {
    ...resourceOptionsOf(config),
    offloadOptimizer: config.offloadOptimizer.device,
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
    execution: { throttles: throttlesOf(config) },
  } satisfies Partial<EngineOptions>;
}

/** The links that the configuration throttles. */
function throttlesOf({ throttle }: TrainConfig): Throttles {
  const { upload, download, nvmeRead, nvmeWrite } = throttle;
  return {
    ...(upload !== undefined && { upload }),
    ...(download !== undefined && { download }),
    ...(nvmeRead !== undefined && { nvme_read: nvmeRead }),
    ...(nvmeWrite !== undefined && { nvme_write: nvmeWrite }),
  };
}

/** Whether a run evaluates at all. */
export function evaluates(config: Pick<TrainConfig, 'evalStrategy' | 'evalOnStart'>): boolean {
  return config.evalStrategy !== 'no' || config.evalOnStart;
}

/** Rows of a micro-batch that is evaluated; undefined in a run that evaluates nothing. */
export function evaluationBatchSize(config: TrainConfig): number | undefined {
  if (!evaluates(config)) return undefined;
  return config.perDeviceEvalBatchSize ?? config.perDeviceTrainBatchSize;
}

/** Rows of the largest micro-batch of a run. */
export function largestBatchSize(config: TrainConfig): number {
  return Math.max(config.perDeviceTrainBatchSize, evaluationBatchSize(config) ?? 0);
}
