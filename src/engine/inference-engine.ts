/**
 * @file InferenceEngine: evaluates and continues sequences with a model whose weights are spread over
 * device, host and NVMe. It trains nothing, so it holds weights and one sequence's cache alone.
 *
 * Losses have the bits of `Engine.evaluate` on the same weights, and logits those of any other
 * placement. After an error the engine accepts only `close`.
 *
 * Owns the device, all arenas and the volume. Does not own the model.
 */
import { SpillwayError, isCoded } from '../../core/errors.js';
import type { Link, Tier } from '../../core/types.js';
import type { MicroBatch } from '../model/block.js';
import type { InferencePlan } from '../plan/inference-plan.js';
import type { StepPlan } from '../plan/step-plan.js';
import { assembleInference, type AssembledInference } from './assemble-inference.js';
import { CallGate } from './call-gate.js';
import type { InferenceOptions } from './inference-options.js';
import { releaseAll, type Release } from './release.js';
import type { SequenceRunner } from './sequence-runner.js';

export class InferenceEngine {
  readonly #parts: AssembledInference;
  readonly #owned: readonly Release[];
  readonly #gate = new CallGate();

  private constructor(parts: AssembledInference, owned: readonly Release[]) {
    this.#parts = parts;
    this.#owned = owned;
  }

  /**
   * Plans, reserves and loads.
   *
   * @throws BUDGET_TOO_SMALL with the smallest budgets that work, DEVICE_UNAVAILABLE,
   *   CONFIG_INVALID, BLOCK_INVALID, MODEL_UNSUPPORTED for a sequence that is too long for the model,
   *   PATH_UNWRITABLE, NVME_FULL, STORE_LOCKED and what the model's sources throw; nothing stays
   *   reserved then
   */
  static async create(options: InferenceOptions): Promise<InferenceEngine> {
    const owned: Release[] = [];
    try {
      return new InferenceEngine(await assembleInference(options, owned), owned);
    } catch (error) {
      await releaseAll(owned); // The first error is the one to report.
      throw error;
    }
  }

  /** Where everything lives. */
  get plan(): InferencePlan {
    return this.#parts.plan;
  }

  get parameterCount(): number {
    return this.#parts.layout.parameterCount;
  }

  /** Elements of each parameter group, in the order of the plan's homes. */
  get groupLengths(): readonly number[] {
    return this.#parts.layout.groups.map((group) => group.length);
  }

  get budgetBytes(): Readonly<Record<Tier, number>> {
    return this.#parts.budgets;
  }

  /** Highest bytes held in each tier since creation. */
  get peakBytes(): Record<Tier, number> {
    return this.#parts.tiers.peakBytes;
  }

  /** Bytes moved on each link since creation, loading included. */
  get bytesMoved(): Record<Link, number> {
    return this.#parts.tiers.bytesMoved;
  }

  /** Calls of kernels that ran in JavaScript since the device has none, by kernel. */
  get cpuFallbacks(): Readonly<Record<string, number>> {
    return Object.fromEntries(this.#parts.tiers.device.fallbackCounts ?? []);
  }

  /**
   * The operations of an evaluation of these micro-batches, at most `plan.evaluationBatches`.
   *
   * @throws USAGE_INVALID without an example batch
   */
  evaluationPlan(batches: readonly MicroBatch[]): StepPlan {
    return forEvaluations(this.#parts.evaluationPlanner).planFor(batches);
  }

  /**
   * Highest bytes on the device in an evaluation of micro-batches of these shapes, as the plan has
   * them; undefined on a device that only a run tells about.
   *
   * @throws USAGE_INVALID without an example batch
   */
  devicePeak(batches: readonly MicroBatch[]): Promise<number> | undefined {
    return this.#parts.devicePeak(this.evaluationPlan(batches), batches);
  }

  /** Tokens of the sequence so far; 0 where the engine does not generate. */
  get sequenceLength(): number {
    return this.#parts.sequence?.length ?? 0;
  }

  /**
   * Mean loss over micro-batches.
   *
   * @returns the loss and the number of loss terms
   * @throws USAGE_INVALID without an example batch; DATA_EMPTY when there are no loss terms;
   *   NON_FINITE, DATA_INVALID, TOKEN_OUT_OF_RANGE; ENGINE_FAILED, ENGINE_CLOSED
   */
  evaluate(batches: Iterable<MicroBatch>): Promise<{ loss: number; terms: number }> {
    return this.#gate.exclusive(() => {
      const evaluations = forEvaluations(this.#parts.evaluations);
      return this.#gate.guard(() => evaluations.run(batches), explain);
    });
  }

  /**
   * Appends tokens to the sequence and computes the logits of the token that follows.
   *
   * @param ids at least one, and no more than `maxLength` leaves room for
   * @returns [V], valid until the next call; NaN and infinities are the caller's to refuse
   * @throws USAGE_INVALID without a `maxLength`, or where there is no room (the engine stays usable);
   *   TOKEN_OUT_OF_RANGE; ENGINE_FAILED, ENGINE_CLOSED
   */
  append(ids: readonly number[]): Promise<Float32Array> {
    return this.#gate.exclusive(() => {
      const sequence = this.#sequence();
      const room = sequence.limit - sequence.length;
      if (ids.length < 1 || ids.length > room) {
        throw new SpillwayError(
          'USAGE_INVALID',
          `the sequence has room for 1 to ${room} more tokens, not for ${ids.length}; give a larger maxLength or start another sequence`,
          { length: sequence.length, limit: sequence.limit, tokens: ids.length },
        );
      }
      return this.#gate.guard(() => sequence.append(ids));
    });
  }

  /** Starts another sequence. @throws USAGE_INVALID without a `maxLength` */
  restart(): Promise<void> {
    return this.#gate.exclusive(async () => this.#sequence().reset());
  }

  /**
   * The values of a parameter, as compute reads them.
   *
   * @throws USAGE_INVALID for an unknown name; the engine stays usable
   */
  readParameter(name: string): Promise<Float32Array> {
    return this.#gate.exclusive(() => {
      if (!this.#parts.layout.params.has(name)) {
        throw new SpillwayError(
          'USAGE_INVALID',
          `the model has no parameter ${name}; check its name`,
        );
      }
      return this.#gate.guard(() => this.#parts.store.readMaster(name));
    });
  }

  /** Waits for the call under way, frees memory, removes the run's NVMe files. Idempotent. */
  close(): Promise<void> {
    return this.#gate.close(async () => {
      const [failure] = await releaseAll(this.#owned);
      if (failure !== undefined) throw failure.error;
    });
  }

  #sequence(): SequenceRunner {
    const { sequence } = this.#parts;
    if (sequence !== undefined) return sequence;
    throw new SpillwayError(
      'USAGE_INVALID',
      'the engine was created without maxLength, so it does not generate; give one',
    );
  }
}

/** What an example batch asks for. @throws USAGE_INVALID without one */
function forEvaluations<T>(part: T | undefined): T {
  if (part !== undefined) return part;
  throw new SpillwayError(
    'USAGE_INVALID',
    'the engine was created without exampleBatch, so it does not evaluate; give one',
  );
}

function explain(error: unknown): unknown {
  if (!isCoded(error) || error.code !== 'NON_FINITE') return error;
  return new SpillwayError(
    'NON_FINITE',
    `${error.message} in an evaluation`,
    error.facts ?? {},
    error,
  );
}
