/**
 * @file The loss of a data set: every row once, in order, every token of equal weight.
 */
import { collate } from '../data/collate.js';
import { sequentialBatches } from '../data/sequential-batches.js';
import type { TokenDataset } from '../data/token-dataset.js';
import type { Engine } from '../engine/engine.js';
import type { MicroBatch } from '../model/block.js';

/** How to evaluate. */
export interface EvaluationOptions {
  /** Rows per micro-batch. */
  readonly batchSize: number;
  /** Lengths in tokens that padding does not cross (`paddedLength`). */
  readonly lengthLimits: readonly number[];
  /** Ends the evaluation between micro-batches. */
  readonly signal?: AbortSignal | undefined;
  /** Receives what is evaluated next. */
  readonly onBatches?: (batches: readonly MicroBatch[]) => void;
  /** Receives rows done, after each micro-batch. */
  readonly onProgress?: (rows: number) => void;
}

/** What an evaluation finds. */
export interface Evaluation {
  /** Mean over all loss terms of all rows. */
  readonly loss: number;
  /** exp(loss) */
  readonly perplexity: number;
  /** Loss terms. */
  readonly terms: number;
  /** Wall time. */
  readonly seconds: number;
}

/**
 * Evaluates all rows, or returns undefined when the signal came first.
 *
 * @throws what `Engine.evaluate` throws
 */
export async function evaluateDataset(
  engine: Pick<Engine, 'evaluate'>,
  dataset: TokenDataset,
  options: EvaluationOptions,
): Promise<Evaluation | undefined> {
  const { batchSize, lengthLimits, signal, onBatches, onProgress } = options;
  const start = performance.now();
  let lossSum = 0;
  let terms = 0;
  let rows = 0;
  for (const batch of sequentialBatches(dataset.length, batchSize)) {
    if (signal?.aborted === true) return undefined;
    const batches = collate(dataset, [batch], lengthLimits);
    onBatches?.(batches);
    const part = await engine.evaluate(batches);
    lossSum += part.loss * part.terms;
    terms += part.terms;
    rows += batch.length;
    onProgress?.(rows);
  }
  const loss = lossSum / terms;
  const seconds = (performance.now() - start) / 1000;
  return { loss, perplexity: Math.exp(loss), terms, seconds };
}
