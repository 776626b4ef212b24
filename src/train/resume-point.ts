/**
 * @file Where a run goes on from, and whether it may.
 */
import { resolve } from 'node:path';
import { SpillwayError } from '../../core/errors.js';
import type { Logger } from '../../core/logger.js';
import type { PretrainedModel } from '../checkpoint/load-pretrained.js';
import {
  openTrainingCheckpoint,
  savedCheckpoints,
  type RunState,
  type TrainingCheckpoint,
} from '../checkpoint/training-checkpoint.js';
import type { TrainConfig } from '../config/train-config.js';
import type { TokenDataset } from '../data/token-dataset.js';
import { modelFingerprint } from '../model/model-fingerprint.js';
import { chosenDevice } from '../../tiers/device/create-device.js';
import { dataFingerprint } from './data-fingerprint.js';

/**
 * The checkpoint that `resume_from_checkpoint` means; undefined for a fresh start.
 *
 * @throws CHECKPOINT_NOT_FOUND, CHECKPOINT_MISMATCH, CHECKPOINT_CORRUPT, IO_ERROR
 */
export async function findResumePoint(
  config: Pick<TrainConfig, 'resumeFromCheckpoint' | 'outputDir'>,
  logger: Logger,
): Promise<TrainingCheckpoint | undefined> {
  const { resumeFromCheckpoint: from, outputDir } = config;
  if (from === undefined) return undefined;
  if (from !== 'true' && from !== 'auto') return openTrainingCheckpoint(from);
  const saved = await savedCheckpoints(outputDir, (error) => {
    logger.warn(`a checkpoint is passed over: ${error.message}`);
  });
  const newest = saved.findLast(({ run }) => run.has_optimizer);
  const last = saved.at(-1);
  if (newest !== undefined) {
    if (newest !== last) {
      logger.warn(
        `checkpoint-${last?.step} was saved with save_only_model; resuming from checkpoint-${newest.step}`,
      );
    }
    return openTrainingCheckpoint(newest.folder);
  }
  if (from === 'true') {
    // A checkpoint without optimizer states says so by name.
    if (last !== undefined) return openTrainingCheckpoint(last.folder);
    throw new SpillwayError(
      'CHECKPOINT_NOT_FOUND',
      `${resolve(outputDir)} has no checkpoint to resume from; use resume_from_checkpoint: auto to start afresh where there is none`,
    );
  }
  if (last !== undefined) {
    logger.warn(
      `checkpoint-${last.step} was saved with save_only_model and cannot be resumed from; starting afresh`,
    );
  }
  return undefined;
}

/** What a run that goes on must have in common with the one before, under the names of keys. */
export function identityOf(
  config: TrainConfig,
  model: PretrainedModel,
  dataset: TokenDataset,
  maxLength: number,
): RunState['identity'] {
  return {
    model: modelFingerprint(model.blocks),
    dtype: config.dtype,
    seed: config.seed,
    per_device_train_batch_size: config.perDeviceTrainBatchSize,
    gradient_accumulation_steps: config.gradientAccumulationSteps,
    max_length: maxLength,
    packing: config.packing,
    data_rows: dataset.length,
    data_tokens: dataset.tokenCount,
    data_hash: dataFingerprint(dataset),
  };
}

/**
 * What it may change: the course of training differs then.
 *
 * @throws DEVICE_UNAVAILABLE
 */
export function settingsOf(config: TrainConfig, totalSteps: number): RunState['settings'] {
  const kwargs = Object.entries(config.lrSchedulerKwargs).flatMap(([name, value]) => {
    const snake = name.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
    return value === undefined ? [] : [[`lr_scheduler_kwargs.${snake}`, value] as const];
  });
  return {
    max_steps: config.maxSteps,
    num_train_epochs: config.numTrainEpochs,
    total_steps: totalSteps,
    learning_rate: config.learningRate,
    lr_scheduler_type: config.lrSchedulerType,
    ...Object.fromEntries(kwargs),
    warmup_steps: config.warmupSteps,
    warmup_ratio: config.warmupRatio,
    adam_beta1: config.adamBeta1,
    adam_beta2: config.adamBeta2,
    adam_epsilon: config.adamEpsilon,
    weight_decay: config.weightDecay,
    max_grad_norm: config.maxGradNorm,
    device: chosenDevice(config.device),
  };
}

/**
 * Compares a checkpoint with the run that is to go on from it; warns of other settings.
 *
 * @throws CHECKPOINT_MISMATCH naming every value that must be the same and is not
 */
export function checkResume(
  checkpoint: TrainingCheckpoint,
  identity: RunState['identity'],
  settings: RunState['settings'],
  logger: Logger,
): void {
  const { folder, run } = checkpoint;
  const others = differences(run.identity, identity);
  if (others.length > 0) {
    throw new SpillwayError(
      'CHECKPOINT_MISMATCH',
      `${folder} is of a run with other values: ${others.join(', ')}; give the same, or start afresh with its weights as model_name_or_path`,
    );
  }
  const { device: deviceBefore, ...before } = run.settings;
  const { device, ...now } = settings;
  const changed = differences(before, now);
  if (changed.length > 0) {
    logger.warn(
      `going on from step ${run.step} with other settings than before: ${changed.join(', ')}`,
    );
  }
  if (deviceBefore !== undefined && deviceBefore !== device) {
    logger.warn(
      `going on from step ${run.step} on device ${shown(device)}, where the steps before ran on ${shown(deviceBefore)}: it rounds otherwise, so results are not those of either alone`,
    );
  }
}

/** `key before → now` for each key whose value differs. */
function differences(before: RunState['settings'], now: RunState['settings']): string[] {
  const keys = new Set([...Object.keys(before), ...Object.keys(now)]);
  return [...keys]
    .filter((key) => before[key] !== now[key])
    .map((key) => `${key} ${shown(before[key])} → ${shown(now[key])}`);
}

/** Characters of a hash that are enough to see that it differs. */
const SHOWN_LENGTH = 12;

function shown(value: string | number | boolean | undefined): string {
  if (value === undefined) return 'not given';
  const text = String(value);
  return /^[0-9a-f]{64}$/.test(text) ? `${text.slice(0, SHOWN_LENGTH)}…` : text;
}

/**
 * Compares the configurations of the model that training starts from and of the checkpoint.
 *
 * @throws CHECKPOINT_MISMATCH naming the fields that differ
 */
export function checkSameModel(base: PretrainedModel, checkpoint: PretrainedModel): void {
  const keys = new Set([...Object.keys(base.config), ...Object.keys(checkpoint.config)]);
  // A checkpoint is saved in the dtype of its run.
  for (const key of ['dtype', 'torch_dtype']) keys.delete(key);
  const other = [...keys].filter(
    (key) => JSON.stringify(base.config[key]) !== JSON.stringify(checkpoint.config[key]),
  );
  if (other.length === 0) return;
  throw new SpillwayError(
    'CHECKPOINT_MISMATCH',
    `${checkpoint.folder} is of another model than ${base.folder}; resume with the model_name_or_path that the run began with`,
    { differing: other },
  );
}
