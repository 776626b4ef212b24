/**
 * @file What a run tells about itself: the trainer reports events, a command shows them.
 *
 * Reports are facts, not text: one reporter draws a progress bar, another writes JSON lines. Calls
 * are synchronous and must not throw.
 */
import type { Link, Tier } from '../../core/types.js';
import type { MetricsRecord } from './metrics-file.js';

/** Data on their way into memory. */
export interface DataProgress {
  readonly split: 'train' | 'eval';
  readonly rows: number;
  readonly bytesDone: number;
  readonly bytesTotal: number;
}

/** Known once everything is planned and loaded. */
export interface RunStart {
  readonly parameterCount: number;
  /** Bytes of weights, gradients and AdamW states. */
  readonly stateBytes: number;
  /** Share of a state's elements at each tier, e.g. `param host 60 % + nvme 40 %, …`. */
  readonly homes: string;
  readonly budgetBytes: Readonly<Record<Tier, number>>;
  readonly rows: number;
  readonly tokens: number;
  readonly evalRows: number;
  readonly totalSteps: number;
  /** Steps done before this run; 0 for a fresh start. */
  readonly firstStep: number;
}

/** After each step. */
export interface StepProgress {
  /** One-based. */
  readonly step: number;
  readonly totalSteps: number;
  readonly loss: number;
  /** Tokens of this step, padding excluded. */
  readonly tokens: number;
  /** Wall time of this step. */
  readonly seconds: number;
  /** Bytes held now, and the budgets. */
  readonly heldBytes: Readonly<Record<Tier, number>>;
  readonly budgetBytes: Readonly<Record<Tier, number>>;
}

/** One evaluation, in the words of transformers' log history. */
export interface EvaluationRecord {
  readonly step: number;
  readonly epoch: number;
  readonly eval_loss: number;
  /** exp(eval_loss) */
  readonly eval_perplexity: number;
  /** In seconds. */
  readonly eval_runtime: number;
  readonly eval_samples_per_second: number;
}

/** The end of a run; also summary.json. */
export interface RunSummary {
  readonly train_loss: number;
  readonly global_step: number;
  readonly num_tokens: number;
  /** In seconds. */
  readonly train_runtime: number;
  readonly eval_loss?: number;
  readonly best_metric?: number;
  readonly best_model_checkpoint?: string;
  readonly peak_bytes: Readonly<Record<Tier, number>>;
  readonly budget_bytes: Readonly<Record<Tier, number>>;
  readonly bytes_moved: Readonly<Record<Link, number>>;
  /** Mean over the steps of this process, loading, evaluations and saving left out. */
  readonly bytes_moved_per_step?: Readonly<Record<Link, number>>;
  /** The same as the plan had it, and the peaks that it foresaw of steps and evaluations. */
  readonly planned?: {
    readonly bytes_per_step: Readonly<Record<Link, number>>;
    readonly peak_bytes: Readonly<Record<Tier, number>>;
  };
  readonly cpu_fallbacks: number;
  readonly peak_rss_bytes: number;
}

/** Receives a run's events, in this order; `stepped`, `logged`, `evaluated` and `saved` many times. */
export interface RunReporter {
  preparing(progress: DataProgress): void;
  started(start: RunStart): void;
  stepped(progress: StepProgress): void;
  logged(record: MetricsRecord): void;
  evaluating(done: number, total: number): void;
  evaluated(record: EvaluationRecord): void;
  /** A checkpoint is complete under its final name. */
  saved(folder: string, step: number): void;
  /** The run ends early, by a signal; `folder` is the checkpoint that it leaves. */
  interrupted(folder: string, step: number): void;
  /** The final model is in `folder`. */
  finished(summary: RunSummary, folder: string): void;
}
