/**
 * @file Everything that a run decides before it reserves memory or writes: its data, its steps, its
 * schedule and where it goes on from.
 */
import { access } from 'node:fs/promises';
import { silentLogger, type Logger } from '../../core/logger.js';
import { loadPretrained, type PretrainedModel } from '../checkpoint/load-pretrained.js';
import { OptimizerStates } from '../checkpoint/optimizer-states.js';
import type { TrainingCheckpoint } from '../checkpoint/training-checkpoint.js';
import type { TrainConfig } from '../config/train-config.js';
import { BatchSampler } from '../data/batch-sampler.js';
import { loadDatasets } from '../data/load-dataset.js';
import type { TokenDataset } from '../data/token-dataset.js';
import type { Model } from '../model/block.js';
import type { LrSchedule } from '../optim/lr-schedule.js';
import { resolveLrSchedule } from '../optim/resolve-lr-schedule.js';
import { Cadence } from './cadence.js';
import { checkpointFolder, type CheckpointFacts } from './checkpoint-writer.js';
import { dataOptionsOf } from './data-options.js';
import { evaluates } from './engine-options-of.js';
import {
  checkResume,
  checkSameModel,
  findResumePoint,
  identityOf,
  settingsOf,
} from './resume-point.js';
import type { RunReporter } from './run-reporter.js';
import { TrainingState } from './training-state.js';

/** A run that may begin. Owns the checkpoint's files until `close()`; not the model's. */
export interface RunPlan {
  readonly config: TrainConfig;
  /** The model that the run began with: configuration and companions. */
  readonly base: PretrainedModel;
  /** The same with the weights to start from, the checkpoint's when there is one. */
  readonly model: Model;
  readonly dataset: TokenDataset;
  /** Present where something is evaluated. */
  readonly evalDataset: TokenDataset | undefined;
  /** Lengths in tokens that padding does not cross: the longest row's, and the model's. */
  readonly lengthLimits: readonly number[];
  /** At the first batch to draw. */
  readonly sampler: BatchSampler;
  readonly schedule: LrSchedule;
  readonly cadence: Cadence;
  readonly checkpoint: TrainingCheckpoint | undefined;
  /** Moments of the checkpoint. */
  readonly initialState: OptimizerStates | undefined;
  readonly state: TrainingState;
  readonly checkpointFacts: CheckpointFacts;
  close(): Promise<void>;
}

/** What planning reports to. */
export interface PlanOptions {
  readonly logger: Logger;
  readonly reporter: Pick<RunReporter, 'preparing'>;
  readonly signal?: AbortSignal;
}

/**
 * Reads data and checkpoint and decides; writes nothing into `output_dir` but the repair of what a
 * killed run left there (listCheckpoints).
 *
 * @param base stays the caller's
 * @throws what reading data and checkpoints throws; CONFIG_INVALID, CHECKPOINT_MISMATCH; the signal's
 *   reason. Nothing stays open then
 */
export async function planRun(
  config: TrainConfig,
  base: PretrainedModel,
  options: PlanOptions,
): Promise<RunPlan> {
  const { logger } = options;
  const checkpoint = await findResumePoint(config, logger);
  const maxLength = Math.min(config.maxLength, base.maxPositions);
  const { train: dataset, eval: evalDataset } = await readData(config, base, maxLength, options);
  const sampler = new BatchSampler({
    rowCount: dataset.length,
    batchSize: config.perDeviceTrainBatchSize,
    accumulationSteps: config.gradientAccumulationSteps,
    seed: config.seed,
    epochs: config.numTrainEpochs,
    maxSteps: config.maxSteps,
  });
  const { totalSteps, stepsPerEpoch } = sampler;
  const schedule = resolveLrSchedule(config, totalSteps);
  const cadence = new Cadence(config, totalSteps, stepsPerEpoch);
  const identity = identityOf(config, base, dataset, maxLength);
  const settings = settingsOf(config, totalSteps);
  const { evalSteps, saveSteps } = cadence;
  const plan = {
    config,
    base,
    dataset,
    evalDataset,
    lengthLimits: [maxLength, ...base.sequenceLimits],
    sampler,
    schedule,
    cadence,
    checkpoint,
    checkpointFacts: { config, identity, settings, totalSteps, evalSteps, saveSteps },
  };
  if (checkpoint === undefined) {
    const close = (): Promise<void> => Promise.resolve();
    return { ...plan, model: base, initialState: undefined, state: TrainingState.fresh(), close };
  }
  checkResume(checkpoint, identity, settings, logger);
  const { step } = checkpoint.run;
  sampler.seek({ epoch: Math.floor(step / stepsPerEpoch), index: step % stepsPerEpoch });
  const state = await restoredState(config, checkpoint, logger);
  return { ...plan, state, ...(await openTensors(config, base, checkpoint)) };
}

async function readData(
  config: TrainConfig,
  model: PretrainedModel,
  maxLength: number,
  { logger, reporter, signal }: PlanOptions,
): Promise<{ train: TokenDataset; eval: TokenDataset | undefined }> {
  const hasEvaluations = evaluates(config);
  if (!hasEvaluations && config.evalFiles !== undefined) {
    logger.warn('eval_files are not read, for eval_strategy is no; set it to steps or epoch');
  }
  const data = await loadDatasets({
    ...dataOptionsOf(config, model, maxLength),
    files: config.dataFiles,
    ...(hasEvaluations ? { evalFiles: config.evalFiles } : {}),
    evalSplit: config.evalSplit,
    seed: config.seed,
    logger,
    onProgress: (progress) => reporter.preparing(progress),
    signal,
  });
  return hasEvaluations ? data : { train: data.train, eval: undefined };
}

async function restoredState(
  config: TrainConfig,
  checkpoint: TrainingCheckpoint,
  logger: Logger,
): Promise<TrainingState> {
  const state = TrainingState.from(checkpoint);
  if (state.bestSaved === undefined) return state;
  const folder = checkpointFolder(config.outputDir, state.bestSaved.step);
  const isThere = await access(folder).then(
    () => true,
    () => false,
  );
  if (isThere) return state;
  logger.warn(`${folder}, the best checkpoint of the resumed run, has gone; it is forgotten`);
  state.bestSaved = undefined;
  return state;
}

/** Opens the checkpoint's weights and states. */
async function openTensors(
  config: TrainConfig,
  base: PretrainedModel,
  checkpoint: TrainingCheckpoint,
): Promise<Pick<RunPlan, 'model' | 'initialState' | 'close'>> {
  // What its configuration is warned of was said of the base's.
  const weights = await loadPretrained(checkpoint.folder, { logger: silentLogger });
  try {
    checkSameModel(base, weights);
    const { step } = checkpoint.run;
    const states = await OptimizerStates.open(checkpoint.folder, base.blocks, step, config.dtype);
    return {
      model: { ...base, source: (spec) => weights.source(spec) },
      initialState: states,
      close: async () => {
        await states.close();
        await weights.close();
      },
    };
  } catch (error) {
    await weights.close();
    throw error;
  }
}
