/**
 * @file `metrics.jsonl`: one JSON object per logging step or evaluation, written when its step is
 * committed.
 *
 * A line is the acknowledgement of its step. `step` comes first, then Hugging Face's names; ours
 * have the prefix `spillway/`. Owns the file's handle.
 */
import { open, type FileHandle } from 'node:fs/promises';

import { writeDurableFile } from '../checkpoint/durable-file.js';
import { writeError } from '../checkpoint/file-errors.js';

/** One line of metrics.jsonl about training. */
export interface MetricsRecord {
  readonly step: number;
  /** Mean of the losses of the steps since the last line. */
  readonly loss: number;
  /** Global gradient norm of the step, before clipping. */
  readonly grad_norm: number;
  /** Learning rate that the step used. */
  readonly learning_rate: number;
  /** Epochs done, as a fraction. */
  readonly epoch: number;
  /** Tokens seen so far, padding excluded. */
  readonly num_tokens: number;
  /** Wall time per step since the last line, in seconds. */
  readonly 'spillway/step_seconds': number;
}

export class MetricsFile {
  readonly #path: string;
  readonly #handle: FileHandle;

  private constructor(path: string, handle: FileHandle) {
    this.#path = path;
    this.#handle = handle;
  }

  /**
   * Starts a file, replacing an older run's, or lines of this run that a checkpoint does not know.
   *
   * @param history the lines that it begins with
   * @throws PATH_UNWRITABLE, OUTPUT_FULL
   */
  static async create(path: string, history: readonly object[] = []): Promise<MetricsFile> {
    try {
      // Whole or not at all: an earlier file stays until all its lines are written again.
      await writeDurableFile(path, (handle) => handle.writeFile(history.map(lineOf).join('')));
      return new MetricsFile(path, await open(path, 'a'));
    } catch (error) {
      throw writeError(path, error);
    }
  }

  /** @throws OUTPUT_FULL, IO_ERROR */
  async append(record: object): Promise<void> {
    try {
      await this.#handle.appendFile(lineOf(record));
    } catch (error) {
      throw writeError(this.#path, error);
    }
  }

  async close(): Promise<void> {
    await this.#handle.close();
  }
}

function lineOf(record: object): string {
  return `${JSON.stringify(record)}\n`;
}
