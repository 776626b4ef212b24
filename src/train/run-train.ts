/**
 * @file `spillway train`: from a configuration to a fine-tuned Hugging Face folder.
 *
 * Everything that can be refused is refused before anything is written into `output_dir`.
 */
import { createHash } from 'node:crypto';
import { access, constants, mkdir } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { formatBytes } from '../../core/bytes.js';
import { SpillwayError } from '../../core/errors.js';
import type { Logger } from '../../core/logger.js';
import { LINKS, TIERS, type Tier } from '../../core/types.js';
import { writeDurableJson } from '../checkpoint/durable-file.js';
import { writeError } from '../checkpoint/file-errors.js';
import { loadPretrained, type PretrainedModel } from '../checkpoint/load-pretrained.js';
import type { TrainConfig } from '../config/train-config.js';
import { BatchSampler } from '../data/batch-sampler.js';
import { paddedLength } from '../data/collate.js';
import { loadDataset, type TokenDataset } from '../data/load-dataset.js';
import { Engine } from '../engine/engine.js';
import { languageModelBatch } from '../model/language-model-batch.js';
import { modelFingerprint } from '../model/model-fingerprint.js';
import { resolveWarmupSteps } from '../optim/lr-schedule.js';
import { MetricsFile } from './metrics-file.js';
import { TrainingLoop, type LoopResult } from './training-loop.js';

/** Where a run's messages go. */
export interface RunOptions {
  /** Warnings and notes. */
  readonly logger: Logger;
  /** Results for people, line by line. */
  readonly stdout: (line: string) => void;
  /** Ends the run after the step that is under way; a checkpoint is saved, the final model is not. */
  readonly signal?: AbortSignal;
}

/**
 * Trains as `config` says.
 *
 * @throws every code of docs/ERRORS.md; what was saved before is unharmed
 */
export async function runTrain(config: TrainConfig, options: RunOptions): Promise<void> {
  const folder = required(config.modelNameOrPath, 'model_name_or_path');
  if (config.dataFiles.length === 0) required(undefined, 'data_files');
  const { logger } = options;
  const model = await loadPretrained(folder, { strictConfig: config.strictConfig, logger });
  try {
    const maxLength = Math.min(config.maxLength, model.maxPositions);
    const dataset = await loadDataset({
      files: config.dataFiles,
      textField: config.datasetTextField,
      maxLength,
      folder: model.folder,
      vocabSize: model.vocabSize,
      logger,
    });
    await prepareOutput(config.outputDir);
    await train(config, options, model, dataset, maxLength);
  } finally {
    await model.close();
  }
}

function required(value: string | undefined, key: string): string {
  if (value === undefined || value === '') {
    throw new SpillwayError(
      'CONFIG_INVALID',
      `${key} is missing; give it in the file or as a flag`,
    );
  }
  return value;
}

/** Creates the folder and makes sure that files can be written there. */
async function prepareOutput(folder: string): Promise<void> {
  try {
    await mkdir(folder, { recursive: true });
    await access(folder, constants.W_OK | constants.X_OK);
  } catch (error) {
    throw writeError(folder, error);
  }
}

/** Stable name of the run's NVMe folder: the same model and output meet the same store. */
function runIdOf(model: PretrainedModel, outputDir: string): string {
  const identity = `${modelFingerprint(model.blocks)}\n${resolve(outputDir)}`;
  return `spillway-${createHash('sha256').update(identity).digest('hex').slice(0, 16)}`;
}

async function train(
  config: TrainConfig,
  options: RunOptions,
  model: PretrainedModel,
  dataset: TokenDataset,
  maxLength: number,
): Promise<void> {
  const started = performance.now();
  const sampler = new BatchSampler({
    rowCount: dataset.length,
    batchSize: config.perDeviceTrainBatchSize,
    accumulationSteps: config.gradientAccumulationSteps,
    seed: config.seed,
    epochs: config.numTrainEpochs,
    maxSteps: config.maxSteps,
  });
  const engine = await createEngine(config, options.logger, model, dataset, maxLength);
  try {
    announce(engine, dataset, sampler, options.stdout);
    const metrics = await MetricsFile.create(join(config.outputDir, 'metrics.jsonl'));
    let result: LoopResult;
    try {
      const loop = new TrainingLoop({
        config,
        engine,
        dataset,
        sampler,
        schedule: {
          type: config.lrSchedulerType,
          warmupSteps: resolveWarmupSteps(config.warmupSteps, sampler.totalSteps),
          totalSteps: sampler.totalSteps,
        },
        maxLength,
        metrics,
        signal: options.signal,
        print: options.stdout,
      });
      result = await loop.run();
    } finally {
      await metrics.close();
    }
    if (result.interrupted) {
      options.stdout(
        `stopped after step ${result.globalStep}; saved as checkpoint-${result.globalStep}`,
      );
      return;
    }
    await engine.save(config.outputDir, { mode: 'into' });
    const summary = summaryOf(engine, result, (performance.now() - started) / 1000);
    await writeDurableJson(join(config.outputDir, 'summary.json'), summary);
    conclude(engine, result, config.outputDir, options.stdout);
  } finally {
    await engine.close();
  }
}

async function createEngine(
  config: TrainConfig,
  logger: Logger,
  model: PretrainedModel,
  dataset: TokenDataset,
  maxLength: number,
): Promise<Engine> {
  const batchSize = config.perDeviceTrainBatchSize;
  const length = paddedLength(dataset.longestRow, maxLength);
  const tokens = new Int32Array(batchSize * length);
  return Engine.create({
    model,
    exampleBatch: languageModelBatch({ inputIds: tokens, labels: tokens, batchSize, length }),
    device: config.device,
    deviceMemory: config.deviceMemory,
    hostMemory: config.hostMemory,
    nvmeMemory: config.nvmeMemory,
    nvmePath: config.nvmePath,
    runId: runIdOf(model, config.outputDir),
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
    logger,
  });
}

/** Share of a state's elements at each tier, e.g. `param host 60 % nvme 40 %`. */
function describeHomes(engine: Engine): string {
  const { homes } = engine.plan;
  const lengths = engine.groupLengths;
  const total = lengths.reduce((sum, length) => sum + length, 0);
  return (['param', 'grad', 'optimizer'] as const)
    .map((state) => {
      const shares = TIERS.flatMap((tier) => {
        const held = homes.reduce(
          (sum, home, group) => sum + (home[state] === tier ? (lengths[group] ?? 0) : 0),
          0,
        );
        return held === 0 ? [] : [`${tier} ${Math.round((held / total) * 100)} %`];
      });
      return `${state} ${shares.join(' + ')}`;
    })
    .join(', ');
}

function announce(
  engine: Engine,
  dataset: TokenDataset,
  sampler: BatchSampler,
  print: (line: string) => void,
): void {
  print(
    `${engine.parameterCount.toLocaleString('en-US')} parameters, training state ${formatBytes(engine.stateBytes)}; homes: ${describeHomes(engine)}`,
  );
  const { device, host, nvme } = engine.budgetBytes;
  print(
    `budgets: device ${formatBytes(device)}, host ${formatBytes(host)}, nvme ${formatBytes(nvme)}`,
  );
  print(
    `${dataset.length.toLocaleString('en-US')} rows, ${dataset.tokenCount.toLocaleString('en-US')} tokens, ${sampler.totalSteps} steps`,
  );
}

function summaryOf(engine: Engine, result: LoopResult, seconds: number): object {
  return {
    train_loss: result.trainLoss,
    global_step: result.globalStep,
    num_tokens: result.tokenCount,
    train_runtime: seconds,
    peak_bytes: engine.peakBytes,
    budget_bytes: engine.budgetBytes,
    bytes_moved: engine.bytesMoved,
    cpu_fallbacks: Object.values(engine.cpuFallbacks).reduce((sum, count) => sum + count, 0),
    peak_rss_bytes: process.resourceUsage().maxRSS * 1024,
  };
}

function conclude(
  engine: Engine,
  result: LoopResult,
  folder: string,
  print: (line: string) => void,
): void {
  const { peakBytes, budgetBytes, bytesMoved } = engine;
  const tiers = TIERS.map(
    (tier: Tier) => `${tier} ${formatBytes(peakBytes[tier])} of ${formatBytes(budgetBytes[tier])}`,
  );
  print(`peak bytes: ${tiers.join(', ')}`);
  print(
    `bytes moved: ${LINKS.map((link) => `${link} ${formatBytes(bytesMoved[link])}`).join(', ')}`,
  );
  print(
    `${result.globalStep} steps, mean loss ${result.trainLoss.toFixed(4)}; model saved in ${folder}`,
  );
}
