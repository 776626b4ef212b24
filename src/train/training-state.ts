/**
 * @file What a run remembers from step to step, and a checkpoint keeps so that metrics go on as if
 * the run had never stopped.
 */
import { randomUUID } from 'node:crypto';
import type {
  RunState,
  TrainerState,
  TrainingCheckpoint,
} from '../checkpoint/training-checkpoint.js';
import type { MetricsRecord } from './metrics-file.js';
import type { EvaluationRecord } from './run-reporter.js';

/** Lines of metrics.jsonl, and of trainer_state.json's `log_history`. */
export type HistoryRecord = MetricsRecord | EvaluationRecord;

/** Steps since the last line of metrics. */
interface Window {
  lossSum: number;
  steps: number;
  /** Wall time of the steps. */
  seconds: number;
}

export class TrainingState {
  /** Names the run; kept when it is resumed. */
  readonly run: string;
  readonly history: HistoryRecord[];
  /** Steps done. */
  step = 0;
  /** Tokens seen, padding excluded. */
  tokenCount = 0;
  /** Sum of all steps' losses. */
  lossSum = 0;
  /** The evaluation of `step` was due and has not taken place. */
  evaluationDue = false;
  /** The lowest loss of an evaluation, and its step. */
  best: { readonly metric: number; readonly step: number } | undefined;
  /** The lowest loss of an evaluation whose weights are a checkpoint, and its step. */
  bestSaved: { readonly metric: number; readonly step: number } | undefined;
  #window: Window = { lossSum: 0, steps: 0, seconds: 0 };

  private constructor(run: string, history: HistoryRecord[]) {
    this.run = run;
    this.history = history;
  }

  /** The state before the first step. */
  static fresh(): TrainingState {
    return new TrainingState(randomUUID(), []);
  }

  static from(checkpoint: TrainingCheckpoint): TrainingState {
    const { run, trainer } = checkpoint;
    // What `log_history` holds was written by `trainerState` below; only its steps matter here.
    const history = trainer.log_history as unknown as HistoryRecord[];
    const state = new TrainingState(run.run, [...history]);
    state.step = run.step;
    state.tokenCount = run.num_tokens;
    state.lossSum = run.loss_sum;
    state.evaluationDue = run.evaluation_due;
    const { loss_sum: lossSum, steps, seconds } = run.window;
    state.#window = { lossSum, steps, seconds };
    if (trainer.best_metric !== null && trainer.best_global_step !== null) {
      state.best = { metric: trainer.best_metric, step: trainer.best_global_step };
    }
    state.bestSaved = run.best_saved ?? undefined;
    return state;
  }

  /** Mean of all steps' losses; 0 before the first. */
  get trainLoss(): number {
    return this.step === 0 ? 0 : this.lossSum / this.step;
  }

  /** Counts a step. */
  addStep(step: number, loss: number, tokens: number): void {
    this.step = step;
    this.tokenCount += tokens;
    this.lossSum += loss;
    this.#window.lossSum += loss;
    this.#window.steps += 1;
  }

  /** Adds wall time of the steps since the last line. */
  addSeconds(seconds: number): void {
    this.#window.seconds += seconds;
  }

  /** Means since the last call, which starts anew. */
  takeWindow(): { readonly loss: number; readonly stepSeconds: number } {
    const { lossSum, steps, seconds } = this.#window;
    this.#window = { lossSum: 0, steps: 0, seconds: 0 };
    return { loss: lossSum / steps, stepSeconds: seconds / steps };
  }

  /** Notes an evaluation of `step`. @returns whether it was the best so far */
  addEvaluation({ step, eval_loss: metric }: EvaluationRecord): boolean {
    if (this.best !== undefined && !(metric < this.best.metric)) return false;
    this.best = { metric, step };
    return true;
  }

  /** The weights of `step` become a checkpoint. @param metric of its evaluation, if any */
  addCheckpoint(metric: number | undefined): void {
    if (metric === undefined) return;
    if (this.bestSaved !== undefined && !(metric < this.bestSaved.metric)) return;
    this.bestSaved = { metric, step: this.step };
  }

  /** The sums that spillway.json keeps. */
  runState(): Pick<
    RunState,
    'run' | 'step' | 'evaluation_due' | 'num_tokens' | 'loss_sum' | 'window' | 'best_saved'
  > {
    const { lossSum, steps, seconds } = this.#window;
    return {
      run: this.run,
      step: this.step,
      evaluation_due: this.evaluationDue,
      num_tokens: this.tokenCount,
      loss_sum: this.lossSum,
      window: { loss_sum: lossSum, steps, seconds },
      best_saved: this.bestSaved ?? null,
    };
  }

  /** The fields of trainer_state.json that go on. @param bestFolder where the best checkpoint is */
  trainerState(bestFolder: string | null): TrainerState {
    return {
      global_step: this.step,
      best_metric: this.best?.metric ?? null,
      best_global_step: this.best?.step ?? null,
      best_model_checkpoint: bestFolder,
      log_history: this.history.map((record) => ({ ...record })),
    };
  }
}
