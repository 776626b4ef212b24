/**
 * @file A run as JSON lines, for machines: one object per event, described in docs/OUTPUT.md.
 *
 * `event` comes first; the other keys are stable and in snake_case, as in metrics.jsonl and
 * summary.json. Numbers that JSON lacks (NaN, infinity) are null.
 */
import type { MetricsRecord } from '../../train/metrics-file.js';
import type {
  DataProgress,
  EvaluationRecord,
  RunReporter,
  RunStart,
  RunSummary,
  StepProgress,
} from '../../train/run-reporter.js';

/** Between two events of the same preparation or evaluation. */
const PROGRESS_INTERVAL_MS = 1000;

export class JsonReporter implements RunReporter {
  readonly #print: (line: string) => void;
  readonly #now: () => number;
  #lastProgressMs = Number.NEGATIVE_INFINITY;

  /**
   * @param print receives one JSON text per event
   * @param now milliseconds of a monotonic clock
   */
  constructor(print: (line: string) => void, now: () => number = () => performance.now()) {
    this.#print = print;
    this.#now = now;
  }

  preparing({ split, rows, bytesDone, bytesTotal }: DataProgress): void {
    const isEnd = bytesDone >= bytesTotal;
    if (!this.#isDue(isEnd)) return;
    this.#event('preparing', { split, rows, bytes_done: bytesDone, bytes_total: bytesTotal });
  }

  started(start: RunStart): void {
    this.#event('started', {
      parameter_count: start.parameterCount,
      state_bytes: start.stateBytes,
      homes: start.homes,
      budget_bytes: start.budgetBytes,
      rows: start.rows,
      tokens: start.tokens,
      eval_rows: start.evalRows,
      total_steps: start.totalSteps,
      first_step: start.firstStep,
    });
  }

  stepped(progress: StepProgress): void {
    this.#event('stepped', {
      step: progress.step,
      total_steps: progress.totalSteps,
      loss: progress.loss,
      tokens: progress.tokens,
      seconds: progress.seconds,
      held_bytes: progress.heldBytes,
      budget_bytes: progress.budgetBytes,
    });
  }

  logged(record: MetricsRecord): void {
    this.#event('logged', record);
  }

  evaluating(done: number, total: number): void {
    if (this.#isDue(done >= total)) this.#event('evaluating', { done, total });
  }

  evaluated(record: EvaluationRecord): void {
    this.#event('evaluated', record);
  }

  saved(folder: string, step: number): void {
    this.#event('saved', { step, folder });
  }

  interrupted(folder: string, step: number): void {
    this.#event('interrupted', { step, folder });
  }

  finished(summary: RunSummary, folder: string): void {
    this.#event('finished', { folder, ...summary });
  }

  /** The end of a piece of work is always told, the way there once in a while. */
  #isDue(isEnd: boolean): boolean {
    const now = this.#now();
    if (isEnd) this.#lastProgressMs = Number.NEGATIVE_INFINITY;
    else if (now - this.#lastProgressMs < PROGRESS_INTERVAL_MS) return false;
    else this.#lastProgressMs = now;
    return true;
  }

  #event(event: string, facts: object): void {
    this.#print(JSON.stringify({ event, ...facts }));
  }
}
