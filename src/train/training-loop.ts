/**
 * @file The loop over optimizer steps: batches in, metrics and checkpoints out.
 *
 * The next step is handed in while the update of the last one still runs; a metrics line is written
 * when its step is committed.
 */
import { join } from 'node:path';
import type { TrainConfig } from '../config/train-config.js';
import type { BatchSampler } from '../data/batch-sampler.js';
import { collate } from '../data/collate.js';
import type { TokenDataset } from '../data/load-dataset.js';
import type { Engine } from '../engine/engine.js';
import type { StepResult } from '../engine/engine-options.js';
import { lrFactor, type LrSchedule } from '../optim/lr-schedule.js';
import type { MetricsFile, MetricsRecord } from './metrics-file.js';

/** What the loop works with; its caller owns all of it. */
export interface LoopParts {
  readonly config: TrainConfig;
  readonly engine: Engine;
  readonly dataset: TokenDataset;
  readonly sampler: BatchSampler;
  readonly schedule: LrSchedule;
  /** Longest sequence in tokens. */
  readonly maxLength: number;
  readonly metrics: MetricsFile;
  /** Ends the run after the step that is under way, with a checkpoint. */
  readonly signal: AbortSignal | undefined;
  /** Receives one line per logging step. */
  readonly print: (line: string) => void;
}

/** Totals of a run. */
export interface LoopResult {
  /** Mean of all steps' losses. */
  readonly trainLoss: number;
  readonly globalStep: number;
  readonly tokenCount: number;
  /** Whether the signal ended the run early. */
  readonly interrupted: boolean;
}

/** A step whose metrics wait for its commit. */
interface Pending {
  readonly committed: Promise<void>;
  readonly record: MetricsRecord | undefined;
}

export class TrainingLoop {
  readonly #parts: LoopParts;
  readonly #history: MetricsRecord[] = [];
  #pending: Pending | undefined;
  #tokenCount = 0;
  #lossSum = 0;
  /** Since the last metrics line. */
  #window = { lossSum: 0, steps: 0, start: performance.now() };

  constructor(parts: LoopParts) {
    this.#parts = parts;
  }

  /** Runs all steps. @throws what the engine, saving and metrics throw */
  async run(): Promise<LoopResult> {
    const { engine, sampler, dataset, maxLength, signal } = this.#parts;
    let interrupted = false;
    for (let batch = sampler.next(); batch !== undefined; batch = sampler.next()) {
      const learningRate = this.#learningRate(engine.stepCount);
      const result = await engine.step(collate(dataset, batch.microBatches, maxLength), {
        learningRate,
      });
      await this.#acknowledge();
      for (const rows of batch.microBatches) {
        for (const row of rows) this.#tokenCount += dataset.rowLength(row);
      }
      this.#pending = {
        committed: result.committed,
        record: this.#recordOf(result, learningRate),
      };
      interrupted = signal?.aborted === true && result.step < sampler.totalSteps;
      if (interrupted || this.#savesAt(result.step)) await this.#saveCheckpoint(result.step);
      if (interrupted) break;
    }
    await this.#acknowledge();
    const globalStep = engine.stepCount;
    return {
      trainLoss: this.#lossSum / globalStep,
      globalStep,
      tokenCount: this.#tokenCount,
      interrupted,
    };
  }

  #learningRate(stepIndex: number): number {
    const { config, schedule } = this.#parts;
    return config.learningRate * lrFactor(schedule, stepIndex);
  }

  /** Waits for the pending step's commit and writes its line. */
  async #acknowledge(): Promise<void> {
    const pending = this.#pending;
    this.#pending = undefined;
    if (pending === undefined) return;
    await pending.committed;
    const { record } = pending;
    if (record === undefined) return;
    await this.#parts.metrics.append(record);
    this.#history.push(record);
    this.#parts.print(describe(record, this.#parts.sampler.totalSteps));
  }

  /** The metrics of a logging step; undefined for other steps. */
  #recordOf(result: StepResult, learningRate: number): MetricsRecord | undefined {
    const { config, sampler } = this.#parts;
    this.#lossSum += result.loss;
    const window = this.#window;
    window.lossSum += result.loss;
    window.steps += 1;
    const isLast = result.step === sampler.totalSteps;
    if (result.step % config.loggingSteps !== 0 && !isLast) return undefined;
    const now = performance.now();
    this.#window = { lossSum: 0, steps: 0, start: now };
    return {
      step: result.step,
      loss: window.lossSum / window.steps,
      grad_norm: result.gradNorm,
      learning_rate: learningRate,
      epoch: sampler.epochsDrawn,
      num_tokens: this.#tokenCount,
      'spillway/step_seconds': (now - window.start) / 1000 / window.steps,
    };
  }

  /** As Hugging Face's Trainer: every `save_steps`, and after the last step. */
  #savesAt(step: number): boolean {
    const { config, sampler } = this.#parts;
    if (config.saveStrategy !== 'steps') return false;
    return step % config.saveSteps === 0 || step === sampler.totalSteps;
  }

  async #saveCheckpoint(step: number): Promise<void> {
    const { config, engine, sampler } = this.#parts;
    await this.#acknowledge();
    await engine.save(join(config.outputDir, `checkpoint-${step}`), {
      optimizer: true,
      jsonFiles: {
        'trainer_state.json': {
          global_step: step,
          epoch: sampler.epochsDrawn,
          max_steps: sampler.totalSteps,
          num_train_epochs: config.numTrainEpochs,
          logging_steps: config.loggingSteps,
          save_steps: config.saveSteps,
          train_batch_size: config.perDeviceTrainBatchSize,
          log_history: this.#history,
        },
        'spillway.json': {
          format: 1,
          dtype: config.dtype,
          seed: config.seed,
          step,
          data_position: sampler.position,
          num_tokens: this.#tokenCount,
        },
      },
    });
  }
}

function describe(record: MetricsRecord, totalSteps: number): string {
  const loss = record.loss.toFixed(4);
  const norm = record.grad_norm.toPrecision(4);
  const rate = record.learning_rate.toExponential(2);
  const seconds = record['spillway/step_seconds'].toFixed(2);
  return `step ${record.step}/${totalSteps}  loss ${loss}  grad_norm ${norm}  lr ${rate}  ${seconds} s/step`;
}
