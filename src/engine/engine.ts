/**
 * @file Engine: trains a chain of blocks whose state is spread over device, host and NVMe.
 *
 * `create` profiles the blocks, plans where everything lives, reserves all memory and files and
 * loads the parameters. `step` resolves after backward; its update may still run while the caller
 * prepares the next step, whose forward waits block by block. At most one update is outstanding.
 * After an error the engine accepts only `close`.
 *
 * Owns the device, all arenas, the volume and the optimizer pool. Does not own the model.
 */
import { SpillwayError, isCoded } from '../../core/errors.js';
import type { Link, Tier } from '../../core/types.js';
import type { MicroBatch } from '../model/block.js';
import type { MachineCosts, StepCosts } from '../plan/costs.js';
import type { MemoryPlan } from '../plan/placement.js';
import type { Phase, StepPlan } from '../plan/step-plan.js';
import { stateBytesOf, type ParamAddress } from '../plan/parameter-layout.js';
import { assembleEngine, type EngineParts } from './assemble-engine.js';
import { CallGate } from './call-gate.js';
import { checkBatch } from './check-batch.js';
import { checkLearningRate } from './check-options.js';
import type { EngineOptions, StepResult } from './engine-options.js';
import { releaseAll, type Release } from './release.js';
import { saveParameters, type SaveOptions } from './save-parameters.js';

/** Options of one step. */
export interface StepOptions {
  /** Learning rate of this step; default: the optimizer's. */
  readonly learningRate?: number;
}

export class Engine {
  readonly #parts: EngineParts;
  readonly #gate = new CallGate();
  #step: number;
  /** Whether some step with a positive learning rate had to change weights, or has to. */
  #changeDemanded: boolean;
  #committed: Promise<void> = Promise.resolve();
  #lastGood = 'none saved';

  private constructor(parts: EngineParts, initialStep: number) {
    this.#parts = parts;
    this.#step = initialStep;
    if (initialStep > 0) this.#lastGood = `step ${initialStep}, which was restored`;
    // A first step at a learning rate of zero, as under warm-up, changes nothing.
    this.#changeDemanded = initialStep > 1;
  }

  /**
   * Plans, reserves and loads.
   *
   * @throws BUDGET_TOO_SMALL with the smallest budgets that work, DEVICE_UNAVAILABLE,
   *   CONFIG_INVALID, BLOCK_INVALID, PATH_UNWRITABLE, NVME_FULL, STORE_LOCKED, CHECKPOINT_MISMATCH
   *   for states of another dtype, and what the model's and the states' sources throw; nothing
   *   stays reserved then
   */
  static async create(options: EngineOptions): Promise<Engine> {
    const owned: Release[] = [];
    try {
      const parts = await assembleEngine(options, owned);
      return new Engine(parts, options.initialState?.step ?? 0);
    } catch (error) {
      await releaseAll(owned); // The first error is the one to report.
      throw error;
    }
  }

  /** Steps taken, those before `initialState` included. */
  get stepCount(): number {
    return this.#step;
  }

  /** Where everything lives. */
  get plan(): MemoryPlan {
    return this.#parts.plan;
  }

  /** The operations of a step over micro-batches of these shapes. */
  stepPlan(batches: readonly MicroBatch[]): StepPlan {
    return this.#parts.planner.planFor(batches);
  }

  /**
   * What a step over micro-batches of these shapes costs on a machine, for `simulate`.
   *
   * @internal
   */
  stepCosts(batches: readonly MicroBatch[], machine: MachineCosts): StepCosts {
    return this.#parts.stepCosts(batches, machine);
  }

  /**
   * Threads of the optimizer pool.
   *
   * @internal
   */
  get workerCount(): number {
    return this.#parts.workerCount;
  }

  /**
   * Highest bytes on the device in each phase of a step over micro-batches of these shapes, as the
   * plan has them; undefined on a device that only a run tells about.
   */
  devicePeaks(batches: readonly MicroBatch[]): Promise<Record<Phase, number>> | undefined {
    return this.#parts.devicePeaks(batches);
  }

  /** The operations of an evaluation of these micro-batches, at most `gradientAccumulationSteps`. */
  evaluationPlan(batches: readonly MicroBatch[]): StepPlan {
    return this.#parts.evaluationPlanner.planFor(batches);
  }

  /**
   * Highest bytes on the device during such an evaluation, as its plan has them; undefined on a
   * device that only a run tells about.
   */
  evaluationPeak(batches: readonly MicroBatch[]): Promise<number> | undefined {
    return this.#parts.evaluationPeak(batches);
  }

  get parameterCount(): number {
    return this.#parts.layout.parameterCount;
  }

  /** Elements of each parameter group, in the order of the plan's homes. */
  get groupLengths(): readonly number[] {
    return this.#parts.layout.groups.map((group) => group.length);
  }

  /** Bytes of weights, gradients and AdamW states of the whole model. */
  get stateBytes(): number {
    return stateBytesOf(this.#parts.layout);
  }

  get budgetBytes(): Readonly<Record<Tier, number>> {
    return this.#parts.budgets;
  }

  /** Highest bytes held in each tier since creation. */
  get peakBytes(): Record<Tier, number> {
    return this.#parts.tiers.peakBytes;
  }

  /** Bytes held in each tier now. */
  get heldBytes(): Record<Tier, number> {
    return this.#parts.tiers.heldBytes;
  }

  /**
   * The most bytes held on the device since the last call: `heldBytes` misses what an operation held
   * and gave back between two readings. For one watcher.
   *
   * @internal
   */
  takeHighDeviceBytes(): number {
    return this.#parts.tiers.device.ledger.takeHighBytes();
  }

  /** Name of the device: what `auto` has become. */
  get deviceName(): string {
    return this.#parts.tiers.device.name;
  }

  /** Calls of kernels that ran in JavaScript since the device has none, by kernel. */
  get cpuFallbacks(): Readonly<Record<string, number>> {
    return Object.fromEntries(this.#parts.tiers.device.fallbackCounts ?? []);
  }

  /** Bytes moved on each link since creation, loading included. */
  get bytesMoved(): Record<Link, number> {
    return this.#parts.tiers.bytesMoved;
  }

  /**
   * One optimizer step over the accumulated batch: at most `gradientAccumulationSteps`
   * micro-batches, none larger than the example batch.
   *
   * @throws NON_FINITE naming step, block and the last good state (nothing of the step is
   *   committed); DATA_INVALID, DATA_EMPTY, CONFIG_INVALID; ENGINE_FAILED, ENGINE_CLOSED; what
   *   moving bytes throws
   */
  step(batches: readonly MicroBatch[], options: StepOptions = {}): Promise<StepResult> {
    return this.#gate.exclusive(() =>
      this.#guard(() => this.#runStep(batches, options), `step ${this.#step + 1}`),
    );
  }

  /**
   * Mean loss over micro-batches, without gradients. Each weight is read once its update is over.
   *
   * @returns the loss and the number of loss terms
   * @throws DATA_EMPTY when there are none; NON_FINITE, DATA_INVALID
   */
  evaluate(batches: readonly MicroBatch[]): Promise<{ loss: number; terms: number }> {
    return this.#gate.exclusive(() =>
      this.#guard(async () => {
        const result = await this.#parts.evaluations.run(batches, this.#step);
        await this.#committed;
        return result;
      }, 'an evaluation'),
    );
  }

  /**
   * Writes a Hugging Face folder: weights in `dtype`, the model's companion files and, if asked
   * for, AdamW's states. Waits for outstanding updates.
   *
   * @throws OUTPUT_FULL, PATH_UNWRITABLE, IO_ERROR; what was there before is unharmed and the
   *   engine stays usable
   */
  save(folder: string, options: SaveOptions = {}): Promise<void> {
    return this.#gate.exclusive(async () => {
      await this.#guard(() => this.#committed);
      await saveParameters(this.#parts.model, this.#parts.store, folder, options);
      this.#lastGood = `step ${this.#step} in ${folder}`;
    });
  }

  /**
   * The float32 master values of a parameter (bfloat16 runs included). Waits for updates.
   *
   * @throws USAGE_INVALID for an unknown name; the engine stays usable
   */
  readParameter(name: string): Promise<Float32Array> {
    return this.#gate.exclusive(() => {
      this.#known(name);
      return this.#guard(async () => {
        await this.#committed;
        return this.#parts.store.readMaster(name);
      });
    });
  }

  /**
   * The gradient of the last step, before clipping. Waits for updates.
   *
   * @throws USAGE_INVALID for a frozen parameter or an unknown name; the engine stays usable
   */
  readGradient(name: string): Promise<Float32Array> {
    return this.#gate.exclusive(() => {
      const { length, spec } = this.#known(name);
      if (spec.trainable === false) {
        throw new SpillwayError('USAGE_INVALID', `${name} is frozen; it has no gradient`);
      }
      return this.#guard(async () => {
        await this.#committed;
        const target = new Float32Array(length);
        await this.#parts.store.copyState(name, 'grad', 0, target);
        return target;
      });
    });
  }

  /** Waits until every step handed in is committed. */
  async drain(): Promise<void> {
    this.#gate.check();
    await this.#guard(() => this.#committed);
  }

  /**
   * Waits for the call under way and its update, ends workers, frees memory, removes the run's
   * NVMe files. Idempotent.
   */
  close(): Promise<void> {
    return this.#gate.close(async () => {
      await this.#committed.catch(() => undefined);
      const [failure] = await releaseAll(this.#parts.owned);
      if (failure !== undefined) throw failure.error;
    });
  }

  async #runStep(batches: readonly MicroBatch[], options: StepOptions): Promise<StepResult> {
    const { microBatchCount, steps, adamw, exampleBatch } = this.#parts;
    if (batches.length < 1 || batches.length > microBatchCount) {
      throw new SpillwayError(
        'DATA_INVALID',
        `a step takes 1 to ${microBatchCount} micro-batches; it was given ${batches.length}`,
      );
    }
    for (const batch of batches) checkBatch(batch, exampleBatch);
    const step = this.#step + 1;
    const learningRate = options.learningRate ?? this.#parts.learningRate;
    checkLearningRate(learningRate);
    const base = {
      options: adamw,
      step,
      learningRate,
      gradScale: 1,
      assertChange: !this.#changeDemanded && learningRate > 0,
    };
    const { loss, gradNorm, updated } = await steps.run(batches, base, this.#committed);
    // Once is enough: where no weight changes, nothing follows.
    if (base.assertChange) this.#changeDemanded = true;
    const committed = updated.catch((error: unknown) => {
      this.#gate.fail(error);
      throw error;
    });
    committed.catch(() => undefined); // The caller, the next step or `drain` reports it.
    this.#committed = committed;
    this.#step = step;
    return { step, loss, gradNorm, committed };
  }

  /** Runs `body`; an error makes the engine refuse everything but `close`. */
  #guard<T>(body: () => Promise<T>, where = 'this call'): Promise<T> {
    return this.#gate.guard(body, (error) => this.#explain(error, where));
  }

  /** Adds step and last good state to a non-finite loss or gradient. */
  #explain(error: unknown, where: string): unknown {
    if (!isCoded(error) || error.code !== 'NON_FINITE') return error;
    return new SpillwayError(
      'NON_FINITE',
      `${error.message} in ${where}; nothing of it is committed, the last good state is ${this.#lastGood}`,
      { ...error.facts, step: this.#step + 1 },
      error,
    );
  }

  #known(name: string): ParamAddress {
    const address = this.#parts.layout.params.get(name);
    if (address !== undefined) return address;
    throw new SpillwayError('USAGE_INVALID', `the model has no parameter ${name}; check its name`);
  }
}
