/**
 * @file Threads that tokenise: a piscina pool with an encoder in each thread.
 *
 * The pool owns its threads. A thread that dies ends the whole pool, since its batch is lost.
 */
import { extname } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Piscina } from 'piscina';
import { SpillwayError } from '../../core/errors.js';
import { fromWireError } from '../optim/wire-error.js';
import { execArgvOf } from '../optim/worker-threads.js';
import type { BatchEncoderOptions, EncodedBatch } from './encode-batch.js';
import type { JsonlLine } from './read-jsonl.js';
import type { BatchOutcome } from './tokenize-worker.js';

/** Encodes batches on `workers` threads. */
export class TokenizePool {
  /** Batches to keep under way: each thread finds the next one waiting when it is done. */
  readonly depth: number;
  readonly #piscina: Piscina;
  #failure: SpillwayError | undefined;
  #closing: Promise<void> | undefined;

  /** @param workerFile another worker module (tests) */
  constructor(workers: number, options: BatchEncoderOptions, workerFile = workerFileOfThisBuild()) {
    this.depth = 2 * workers + 1;
    this.#piscina = new Piscina({
      filename: workerFile,
      name: 'encode',
      minThreads: workers,
      maxThreads: workers,
      idleTimeout: Infinity,
      concurrentTasksPerWorker: 1,
      maxQueue: this.depth,
      recordTiming: false,
      // As in the optimizer's pool: a thread in Atomics.wait would not run its event loop.
      atomics: 'disabled',
      workerData: options,
      execArgv: execArgvOf(workerFile),
    });
    // A thread may also die between tasks.
    this.#piscina.on('error', (error) => {
      this.#fail(error);
    });
  }

  /**
   * Encodes one batch; call for at most `depth` at once.
   *
   * @throws what `BatchEncoder.encode` throws; WORKER_FAILED when a thread died
   */
  async encode(lines: readonly JsonlLine[]): Promise<EncodedBatch> {
    if (this.#failure !== undefined) throw this.#failure;
    let outcome: BatchOutcome;
    try {
      outcome = (await this.#piscina.run(lines)) as BatchOutcome;
    } catch (error) {
      throw this.#fail(error);
    }
    if (outcome.kind === 'failed') throw fromWireError(outcome.error);
    return outcome.batch;
  }

  /** Ends the threads, also those at work, whose batches fail. Idempotent; never rejects. */
  close(): Promise<void> {
    this.#closing ??= this.#piscina.destroy();
    return this.#closing;
  }

  /** The first failure; tasks that wait for a thread fail as well, since none may follow. */
  #fail(cause: unknown): SpillwayError {
    if (this.#failure === undefined) {
      const reason = cause instanceof Error ? cause.message : String(cause);
      this.#failure = new SpillwayError(
        'WORKER_FAILED',
        `a tokenising thread died: ${reason}; lower dataset_num_proc if memory ran out`,
        {},
        cause,
      );
      void this.close();
    }
    return this.#failure;
  }
}

/** The worker module with the extension of this one: `.js` when built, `.ts` under tsx, vitest. */
function workerFileOfThisBuild(): string {
  const here = fileURLToPath(import.meta.url);
  return fileURLToPath(new URL(`./tokenize-worker${extname(here)}`, import.meta.url));
}
