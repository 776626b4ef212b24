/**
 * @file The loop over optimizer steps: batches in, metrics, evaluations and checkpoints out.
 *
 * The next step is handed in while the update of the last one still runs; a metrics line is written
 * when its step is committed. After a step come its line, its evaluation and its checkpoint, in
 * this order, as in Hugging Face's Trainer.
 */
import type { TrainConfig } from '../config/train-config.js';
import type { BatchSampler } from '../data/batch-sampler.js';
import { collate } from '../data/collate.js';
import type { TokenDataset } from '../data/token-dataset.js';
import type { Engine } from '../engine/engine.js';
import type { StepResult } from '../engine/engine-options.js';
import { lrFactor, type LrSchedule } from '../optim/lr-schedule.js';
import type { Cadence } from './cadence.js';
import type { CheckpointWriter } from './checkpoint-writer.js';
import { evaluateDataset } from './evaluate-dataset.js';
import type { MetricsFile, MetricsRecord } from './metrics-file.js';
import type { EvaluationRecord, RunReporter } from './run-reporter.js';
import type { StepAccounts } from './step-accounts.js';
import type { Interlude, TraceRecorder } from './trace/trace-recorder.js';
import type { TrainingState } from './training-state.js';

/** What the loop works with; its caller owns all of it. */
export interface LoopParts {
  readonly config: TrainConfig;
  readonly engine: Engine;
  readonly dataset: TokenDataset;
  /** Present where something is evaluated. */
  readonly evalDataset: TokenDataset | undefined;
  /** At the position of `state`. */
  readonly sampler: BatchSampler;
  readonly schedule: LrSchedule;
  readonly cadence: Cadence;
  /** Lengths in tokens that padding does not cross (`paddedLength`). */
  readonly lengthLimits: readonly number[];
  readonly metrics: MetricsFile;
  readonly checkpoints: CheckpointWriter;
  /** Mutated as the run goes on. */
  readonly state: TrainingState;
  readonly reporter: RunReporter;
  readonly accounts: StepAccounts;
  readonly trace: TraceRecorder | undefined;
  /** Ends the run after the step, or the batch of an evaluation, that is under way. */
  readonly signal: AbortSignal | undefined;
}

/** A step whose metrics wait for its commit. */
interface Pending {
  readonly step: number;
  readonly committed: Promise<void>;
  readonly record: MetricsRecord | undefined;
}

export class TrainingLoop {
  readonly #parts: LoopParts;
  #pending: Pending | undefined;

  constructor(parts: LoopParts) {
    this.#parts = parts;
  }

  /**
   * Runs the steps that are left.
   *
   * @returns the checkpoint that an interrupted run leaves; undefined when it came to its end
   * @throws what the engine, saving and metrics throw; the signal's reason when it came before there
   *   was anything to save
   */
  async run(): Promise<{ readonly interruptedIn: string } | undefined> {
    const { accounts, config, engine, sampler, state, signal, trace } = this.#parts;
    accounts.resume();
    if (state.step === 0 && config.evalOnStart && (await this.#evaluate()) === undefined) {
      signal?.throwIfAborted();
    }
    if (state.evaluationDue) {
      const folder = await this.#conclude();
      if (folder !== undefined) return { interruptedIn: folder };
    }
    for (let batch = sampler.next(); batch !== undefined; batch = sampler.next()) {
      const start = performance.now();
      const { dataset, lengthLimits } = this.#parts;
      const learningRate = this.#learningRate(engine.stepCount);
      const microBatches = collate(dataset, batch.microBatches, lengthLimits);
      accounts.step(microBatches);
      trace?.step(microBatches);
      const result = await engine.step(microBatches, { learningRate });
      await this.#acknowledge();
      const tokens = this.#tokensOf(batch.microBatches);
      state.addStep(result.step, result.loss, tokens);
      const seconds = (performance.now() - start) / 1000;
      state.addSeconds(seconds);
      const record = this.#recordOf(result, learningRate);
      this.#pending = { step: result.step, committed: result.committed, record };
      this.#reportStep(result, tokens, seconds);
      const folder = await this.#conclude();
      if (folder !== undefined) return { interruptedIn: folder };
    }
    await this.#acknowledge();
    return undefined;
  }

  #learningRate(stepIndex: number): number {
    const { config, schedule } = this.#parts;
    return config.learningRate * lrFactor(schedule, stepIndex);
  }

  #tokensOf(microBatches: readonly Uint32Array[]): number {
    let tokens = 0;
    for (const rows of microBatches) {
      for (const row of rows) tokens += this.#parts.dataset.rowLength(row);
    }
    return tokens;
  }

  /** Waits for the pending step's commit and writes its line. */
  async #acknowledge(): Promise<void> {
    const pending = this.#pending;
    this.#pending = undefined;
    if (pending === undefined) return;
    await pending.committed;
    this.#parts.trace?.committed(pending.step);
    const { record } = pending;
    if (record === undefined) return;
    const { metrics, state, reporter } = this.#parts;
    await metrics.append(record);
    state.history.push(record);
    reporter.logged(record);
  }

  /** The metrics of a logging step; undefined for other steps. */
  #recordOf(result: StepResult, learningRate: number): MetricsRecord | undefined {
    const { cadence, sampler, state } = this.#parts;
    if (!cadence.logsAt(result.step)) return undefined;
    const { loss, stepSeconds } = state.takeWindow();
    return {
      step: result.step,
      loss,
      grad_norm: result.gradNorm,
      learning_rate: learningRate,
      epoch: sampler.epochsDrawn,
      num_tokens: state.tokenCount,
      'spillway/step_seconds': stepSeconds,
    };
  }

  #reportStep(result: StepResult, tokens: number, seconds: number): void {
    const { engine, sampler, reporter } = this.#parts;
    reporter.stepped({
      step: result.step,
      totalSteps: sampler.totalSteps,
      loss: result.loss,
      tokens,
      seconds,
      heldBytes: engine.heldBytes,
      budgetBytes: engine.budgetBytes,
    });
  }

  /**
   * Evaluates and saves as the step asks.
   *
   * @returns the checkpoint, where the run ends here because of the signal
   */
  async #conclude(): Promise<string | undefined> {
    const { cadence, checkpoints, sampler, state, signal } = this.#parts;
    const { step } = state;
    let isBest = false;
    let metric: number | undefined;
    if (cadence.evaluatesAt(step)) {
      const record = await this.#evaluate();
      state.evaluationDue = record === undefined;
      if (record !== undefined) isBest = state.addEvaluation(record);
      metric = record?.eval_loss;
    }
    const isLast = step >= sampler.totalSteps && !state.evaluationDue;
    const interrupted = signal?.aborted === true && !isLast;
    const saves = cadence.savesAt(step, isBest) && !state.evaluationDue;
    // What only the signal saves is no candidate for the best: the same run without it is not.
    if (saves) state.addCheckpoint(metric);
    if (!saves && !interrupted) return undefined;
    await this.#acknowledge();
    const folder = await this.#apart('checkpoint', () =>
      checkpoints.save(state, sampler.epochsDrawn),
    );
    return interrupted ? folder : undefined;
  }

  /** Runs `body`, which moves bytes that no step moves, when no update is outstanding. */
  async #apart<T>(name: Interlude, body: () => Promise<T>): Promise<T> {
    const { accounts, state, trace } = this.#parts;
    accounts.pause();
    const start = performance.now();
    const result = await body();
    trace?.interlude(name, state.step, start);
    accounts.resume();
    return result;
  }

  /** Evaluates and writes the line; undefined when the signal comes first. */
  async #evaluate(): Promise<EvaluationRecord | undefined> {
    const { config, engine, evalDataset, lengthLimits, metrics, reporter, signal } = this.#parts;
    const { accounts, sampler, state } = this.#parts;
    if (evalDataset === undefined) return undefined;
    await this.#acknowledge();
    const total = evalDataset.length;
    const found = await this.#apart('evaluation', () =>
      evaluateDataset(engine, evalDataset, {
        batchSize: config.perDeviceEvalBatchSize ?? config.perDeviceTrainBatchSize,
        lengthLimits,
        signal,
        onBatches: (batches) => accounts.evaluation(batches),
        onProgress: (done) => reporter.evaluating(done, total),
      }),
    );
    if (found === undefined) return undefined;
    const record: EvaluationRecord = {
      step: state.step,
      epoch: sampler.epochsDrawn,
      eval_loss: found.loss,
      eval_perplexity: found.perplexity,
      eval_runtime: found.seconds,
      eval_samples_per_second: total / found.seconds,
    };
    await metrics.append(record);
    state.history.push(record);
    reporter.evaluated(record);
    return record;
  }
}
