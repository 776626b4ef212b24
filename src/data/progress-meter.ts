/**
 * @file Progress of reading data, told at most ten times a second: a terminal shows no more.
 */
import type { DatasetProgress } from './token-dataset.js';

const INTERVAL_MS = 100;

/** Where progress goes, and of what. */
export interface ProgressMeterOptions {
  readonly split: DatasetProgress['split'];
  readonly bytesTotal: number;
  readonly onProgress: ((progress: DatasetProgress) => void) | undefined;
}

/** Passes progress on; the first and the last report always. */
export class ProgressMeter {
  readonly #options: ProgressMeterOptions;
  #lastMs = -Infinity;
  #bytesDone = 0;

  constructor(options: ProgressMeterOptions) {
    this.#options = options;
    this.report(0, 0);
  }

  /** Tells of progress unless that was done just now. */
  report(rows: number, bytesDone: number): void {
    this.#bytesDone = bytesDone;
    const nowMs = performance.now();
    if (nowMs - this.#lastMs < INTERVAL_MS) return;
    this.#lastMs = nowMs;
    this.#tell(rows, bytesDone);
  }

  /** Everything is read. */
  finish(rows: number): void {
    // A file may shrink while it is read, and a pipe has no size.
    this.#tell(rows, Math.max(this.#options.bytesTotal, this.#bytesDone));
  }

  #tell(rows: number, bytesDone: number): void {
    const { split, bytesTotal, onProgress } = this.#options;
    onProgress?.({ split, rows, bytesDone, bytesTotal: Math.max(bytesTotal, bytesDone) });
  }
}
