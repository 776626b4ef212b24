/**
 * @file Saves checkpoints during a run and removes those whose time has passed.
 */
import { join, resolve } from 'node:path';
import { removeCheckpoint } from '../checkpoint/remove-checkpoint.js';
import {
  RUN_STATE_NAME,
  TRAINER_STATE_NAME,
  savedCheckpoints,
  type RunState,
} from '../checkpoint/training-checkpoint.js';
import type { TrainConfig } from '../config/train-config.js';
import type { Engine } from '../engine/engine.js';
import type { RunReporter } from './run-reporter.js';
import type { TrainingState } from './training-state.js';

/** What checkpoints say beside the state of the run. */
export interface CheckpointFacts {
  readonly config: TrainConfig;
  readonly identity: RunState['identity'];
  readonly settings: RunState['settings'];
  readonly totalSteps: number;
  /** Whole steps between checkpoints, and between evaluations. */
  readonly saveSteps: number;
  readonly evalSteps: number;
}

/** Folder of the checkpoint of `step`. */
export function checkpointFolder(outputDir: string, step: number): string {
  return join(outputDir, `checkpoint-${step}`);
}

export class CheckpointWriter {
  readonly #engine: Engine;
  readonly #facts: CheckpointFacts;
  readonly #reporter: RunReporter;

  constructor(engine: Engine, facts: CheckpointFacts, reporter: RunReporter) {
    this.#engine = engine;
    this.#facts = facts;
    this.#reporter = reporter;
  }

  /**
   * Saves the engine's step as `state` tells it; everything of that step must be committed.
   *
   * @param epoch epochs done, as a fraction
   * @returns the folder
   * @throws OUTPUT_FULL, PATH_UNWRITABLE, IO_ERROR; earlier checkpoints are unharmed
   */
  async save(state: TrainingState, epoch: number): Promise<string> {
    const { config, identity, settings } = this.#facts;
    const folder = checkpointFolder(config.outputDir, state.step);
    const runState: RunState = {
      format: 2,
      saved_at: Date.now(),
      has_optimizer: !config.saveOnlyModel,
      identity,
      settings,
      ...state.runState(),
    };
    await this.#engine.save(folder, {
      optimizer: !config.saveOnlyModel,
      maxShardSize: config.maxShardSize,
      jsonFiles: {
        [TRAINER_STATE_NAME]: this.#trainerState(state, epoch),
        [RUN_STATE_NAME]: runState,
      },
    });
    this.#reporter.saved(folder, state.step);
    await this.#rotate(folder, state);
    return folder;
  }

  /** Hugging Face's fields, of which only those of `TrainingState` are read again. */
  #trainerState(state: TrainingState, epoch: number): object {
    const { config, totalSteps, saveSteps, evalSteps } = this.#facts;
    const { bestSaved } = state;
    const best =
      bestSaved === undefined ? null : checkpointFolder(config.outputDir, bestSaved.step);
    const { log_history: history, ...progress } = state.trainerState(best);
    return {
      ...progress,
      epoch,
      max_steps: totalSteps,
      num_train_epochs: config.numTrainEpochs,
      logging_steps: config.loggingSteps,
      eval_steps: evalSteps,
      save_steps: saveSteps,
      train_batch_size: config.perDeviceTrainBatchSize,
      log_history: history,
    };
  }

  /**
   * Removes the oldest checkpoints beyond `save_total_limit`; never the newest, nor the best one
   * that is to be loaded, which may then be one too many (transformers' rotate_checkpoints).
   */
  async #rotate(newest: string, { bestSaved }: TrainingState): Promise<void> {
    const { config } = this.#facts;
    const { saveTotalLimit, loadBestModelAtEnd, outputDir } = config;
    if (saveTotalLimit === undefined) return;
    const kept = new Set([resolve(newest)]);
    if (loadBestModelAtEnd && bestSaved !== undefined) {
      kept.add(resolve(checkpointFolder(outputDir, bestSaved.step)));
    }
    // What cannot be read is nothing to remove: who looks for it says so.
    const saved = await savedCheckpoints(outputDir, () => undefined);
    const limit = Math.max(saveTotalLimit, kept.size);
    const removable = saved.filter(({ folder }) => !kept.has(folder));
    for (const { folder } of removable.slice(0, Math.max(0, saved.length - limit))) {
      await removeCheckpoint(folder);
    }
  }
}
