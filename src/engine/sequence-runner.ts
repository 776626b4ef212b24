/**
 * @file Continues one sequence: tokens in, logits of the token that follows out.
 *
 * Many tokens at once pass in parts of at most `PART_TOKENS`; blocks come from their tiers once per
 * part, by a plan that the executor runs (src/plan/build-continuation.ts). The logits of one position
 * are the only [V] that exists, in host memory, tile after tile.
 * Owns neither cache nor lease.
 */
import { assert } from '../../core/errors.js';
import type { MemoryLease } from '../../tiers/host/host-buffer.js';
import type { BlockAux } from '../model/block.js';
import type { ActivationShapes } from './activation-shapes.js';
import type { ContinuationPlanner } from './continuation-planner.js';
import { LossSum } from './loss-sum.js';
import type { StepExecutor } from './step-executor.js';

/** Most tokens of one pass: weights are worth loading for so many, and temporaries stay small. */
export const PART_TOKENS = 256;

/** What continuing works with; the engine owns all of it. */
export interface SequenceRunnerParts {
  readonly planner: ContinuationPlanner;
  readonly executor: StepExecutor;
  readonly shapes: ActivationShapes;
  /** V float32. */
  readonly logits: MemoryLease;
  /** Most tokens of the sequence. */
  readonly limit: number;
  readonly seed: number;
}

export class SequenceRunner {
  readonly #parts: SequenceRunnerParts;
  #length = 0;

  constructor(parts: SequenceRunnerParts) {
    this.#parts = parts;
  }

  /** Tokens of the sequence so far. */
  get length(): number {
    return this.#length;
  }

  get limit(): number {
    return this.#parts.limit;
  }

  /** Starts another sequence. */
  reset(): void {
    this.#length = 0;
  }

  /**
   * Appends `ids`, at least one, and computes the logits of what follows.
   *
   * @returns [V], valid until the next call
   * @throws TOKEN_OUT_OF_RANGE; anything that moves or computes may throw
   */
  async append(ids: readonly number[]): Promise<Float32Array> {
    assert(ids.length > 0 && this.#length + ids.length <= this.limit, 'the tokens have room');
    for (let start = 0; start < ids.length; start += PART_TOKENS) {
      const part = ids.slice(start, start + PART_TOKENS);
      await this.#pass(part, start + part.length === ids.length);
      this.#length += part.length;
    }
    const { buffer, byteOffset, byteLength } = this.#parts.logits.bytes;
    return new Float32Array(buffer, byteOffset, byteLength / 4);
  }

  async #pass(ids: readonly number[], wantsLogits: boolean): Promise<void> {
    const { planner, executor, shapes, seed, limit } = this.#parts;
    const first = this.#length;
    const fields = { input_ids: { data: Int32Array.from(ids), shape: [1, ids.length] } };
    const indices = { lossScale: 1, seed, step: 0, microBatch: 0, block: 0 };
    const aux: BlockAux = { fields, tensors: {}, ...indices };
    const plan = planner.planFor(fields, { first, count: ids.length, wantsLogits });
    const { finished } = executor.start(plan, {
      step: 0,
      aux: [aux],
      losses: () => new LossSum('none'),
      inputShape: shapes.of,
      place: { first, limit },
    });
    await finished;
  }
}
