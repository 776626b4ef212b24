/**
 * @file A run on a terminal: a progress bar, and the plain reporter's lines above it.
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
import { formatCount } from './event-lines.js';
import { formatDuration } from './format-duration.js';
import { MovingRate } from './moving-rate.js';
import { PlainReporter } from './plain-reporter.js';
import { describeOccupancy, describeTokenRate, type ProgressState } from './progress-line.js';
import type { StatusBar } from './status-bar.js';

export class ProgressReporter implements RunReporter {
  readonly #bar: StatusBar;
  readonly #lines: PlainReporter;
  readonly #rate = new MovingRate();
  /** The bar of the training steps, to return to after an evaluation. */
  #training: ProgressState | undefined;

  /**
   * @param bar stays the caller's, who hides it when the run ends in any way
   * @param print receives results line by line, and keeps them off the bar
   */
  constructor(bar: StatusBar, print: (line: string) => void) {
    this.#bar = bar;
    // The bar shows the progress of preparation: no lines of it.
    this.#lines = new PlainReporter(print);
  }

  preparing(progress: DataProgress): void {
    this.#bar.show({
      label: `reading ${progress.split} data`,
      done: progress.bytesDone,
      total: progress.bytesTotal,
      count: `${formatCount(progress.rows)} rows`,
      fields: [],
    });
  }

  started(start: RunStart): void {
    this.#bar.hide();
    this.#lines.started(start);
    this.#showTraining({
      label: 'train',
      done: start.firstStep,
      total: start.totalSteps,
      count: `${start.firstStep}/${start.totalSteps}`,
      fields: [],
    });
  }

  stepped(progress: StepProgress): void {
    this.#lines.stepped(progress);
    this.#rate.add(progress.tokens, progress.seconds);
    const { step, totalSteps, heldBytes, budgetBytes } = progress;
    const left = (totalSteps - step) * this.#rate.secondsPerStep;
    this.#showTraining({
      label: 'train',
      done: step,
      total: totalSteps,
      count: `${step}/${totalSteps}`,
      fields: [
        `loss ${progress.loss.toFixed(4)}`,
        describeTokenRate(this.#rate.tokensPerSecond),
        `${formatDuration(left)} left`,
        describeOccupancy(heldBytes, budgetBytes),
      ].filter((field) => field !== ''),
    });
  }

  logged(record: MetricsRecord): void {
    this.#lines.logged(record);
  }

  evaluating(done: number, total: number): void {
    this.#bar.show({ label: 'evaluate', done, total, count: `${done}/${total}`, fields: [] });
  }

  evaluated(record: EvaluationRecord): void {
    this.#lines.evaluated(record);
    if (this.#training !== undefined) this.#bar.show(this.#training);
  }

  saved(folder: string): void {
    this.#lines.saved(folder);
  }

  interrupted(folder: string, step: number): void {
    this.#bar.hide();
    this.#lines.interrupted(folder, step);
  }

  finished(summary: RunSummary, folder: string): void {
    this.#bar.hide();
    this.#lines.finished(summary, folder);
  }

  #showTraining(state: ProgressState): void {
    this.#training = state;
    this.#bar.show(state);
  }
}
