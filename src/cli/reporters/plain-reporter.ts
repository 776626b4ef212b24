/**
 * @file A run as plain lines: for files, pipes, continuous integration, and `disable_tqdm`.
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
import { BackingOff } from './backing-off.js';
import {
  evaluatedLine,
  interruptedLine,
  loggedLine,
  preparingLine,
  savedLine,
  startedLines,
} from './event-lines.js';
import { RunTotals } from './run-totals.js';

/** Work that is over sooner is not worth a line. */
const FIRST_PROGRESS_MS = 5000;

export class PlainReporter implements RunReporter {
  readonly #print: (line: string) => void;
  readonly #totals = new RunTotals();
  readonly #preparing: BackingOff;
  #totalSteps = 0;

  /**
   * @param print receives results, line by line
   * @param now milliseconds of a monotonic clock
   */
  constructor(print: (line: string) => void, now: () => number = () => performance.now()) {
    this.#print = print;
    this.#preparing = new BackingOff(FIRST_PROGRESS_MS, now);
  }

  preparing(progress: DataProgress): void {
    if (this.#preparing.open()) this.#print(preparingLine(progress));
  }

  started(start: RunStart): void {
    this.#totals.started(start);
    this.#totalSteps = start.totalSteps;
    this.#lines(startedLines(start));
  }

  stepped(progress: StepProgress): void {
    this.#totals.stepped(progress);
  }

  logged(record: MetricsRecord): void {
    this.#totals.logged(record);
    this.#print(loggedLine(record, this.#totalSteps));
  }

  evaluating(): void {
    // The line of its result is enough.
  }

  evaluated(record: EvaluationRecord): void {
    this.#totals.evaluated(record);
    this.#print(evaluatedLine(record));
  }

  saved(folder: string): void {
    this.#print(savedLine(folder));
  }

  interrupted(folder: string, step: number): void {
    this.#print(interruptedLine(folder, step));
  }

  finished(summary: RunSummary, folder: string): void {
    this.#lines(['', ...this.#totals.render(summary, folder)]);
  }

  #lines(lines: readonly string[]): void {
    for (const line of lines) this.#print(line);
  }
}
