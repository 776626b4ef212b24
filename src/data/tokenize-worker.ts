/**
 * @file The module that each tokenising thread runs. Owns the thread's encoder.
 *
 * piscina calls `encode` for one batch at a time; the tokens' memory moves to the main thread.
 */
import { workerData } from 'node:worker_threads';
import { move, transferableSymbol, valueSymbol } from 'piscina';
import { toWireError } from '../optim/wire-error.js';
import type { WireError } from '../optim/wire-error.js';
import { BatchEncoder } from './encode-batch.js';
import type { BatchEncoderOptions, EncodedBatch } from './encode-batch.js';
import type { JsonlLine } from './read-jsonl.js';

/** What a task comes to, as plain data: errors lose code and facts between threads. */
export type BatchOutcome =
  | { readonly kind: 'done'; readonly batch: EncodedBatch }
  | { readonly kind: 'failed'; readonly error: WireError };

const encoder = new BatchEncoder(workerData as BatchEncoderOptions);

/** @returns a `BatchOutcome`, which piscina takes out of its envelope */
export async function encode(lines: readonly JsonlLine[]): Promise<unknown> {
  let outcome: BatchOutcome;
  try {
    outcome = { kind: 'done', batch: await encoder.encode(lines) };
  } catch (error) {
    return {
      kind: 'failed',
      error: toWireError(error, 'tokenising thread'),
    } satisfies BatchOutcome;
  }
  const { lengths, tokens } = outcome.batch;
  return move({
    [transferableSymbol]: [lengths.buffer, tokens.buffer],
    [valueSymbol]: outcome,
  });
}
