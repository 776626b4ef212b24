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
import { randomBytes } from 'node:crypto';
import { availableParallelism } from 'node:os';
import { dirname } from 'node:path';
import { parseByteSize } from '../../core/bytes.js';
import { SpillwayError, formatError, isCoded } from '../../core/errors.js';
import { silentLogger, warnOnce, type Logger } from '../../core/logger.js';
import type { ComputeDtype, Link, Tier } from '../../core/types.js';
import { createDevice } from '../../tiers/device/create-device.js';
import type { Device } from '../../tiers/device/device.js';
import { HostPool } from '../../tiers/host/host-pool.js';
import { createIoBackend } from '../../tiers/nvme/create-io-backend.js';
import { createLayout } from '../../tiers/nvme/layout.js';
import { ShardDirectory, directoryRecords } from '../../tiers/nvme/directory.js';
import { NvmeVolume } from '../../tiers/nvme/volume.js';
import { TierManager } from '../../tiers/tier-manager.js';
import { resolveBudgets } from '../config/resolve-budgets.js';
import type { MicroBatch, Model } from '../model/block.js';
import { modelFingerprint } from '../model/model-fingerprint.js';
import { ADAMW_DEFAULTS, type AdamwOptions } from '../optim/adamw-options.js';
import { clipCoefficient, gradientNorm } from '../optim/grad-norm.js';
import { OptimizerPool } from '../optim/optimizer-pool.js';
import { stagingBytes, type StagingShape } from '../optim/staging.js';
import { planMemory, type MemoryPlan } from '../plan/memory-plan.js';
import {
  layoutParameters,
  type ParameterGroup,
  type ParameterLayout,
} from '../plan/parameter-layout.js';
import { ActivationStore } from './activation-store.js';
import type { EngineOptions, StepResult } from './engine-options.js';
import { GradientWriter } from './gradient-writer.js';
import { ParameterStore } from './parameter-store.js';
import { RowGradients } from './row-gradients.js';
import { saveParameters, type SaveOptions } from './save-parameters.js';
import { StepRunner } from './step-runner.js';
import { UpdateSweep, type UpdateSettings } from './update-sweep.js';
import { probeWorkspaces } from './workspace-probe.js';

/** Defaults that the configuration shares (docs/CONFIG.md). */
const DEFAULTS = { learningRate: 2e-5, maxGradNorm: 1, subGroupSize: 16_777_216, seed: 42 };

type Owned = () => Promise<void> | void;

interface EngineParts {
  readonly model: Model;
  readonly tiers: TierManager;
  readonly layout: ParameterLayout;
  readonly plan: MemoryPlan;
  readonly store: ParameterStore;
  readonly writer: GradientWriter;
  readonly runner: StepRunner;
  readonly sweep: UpdateSweep;
  readonly pool: OptimizerPool;
  readonly adamw: AdamwOptions;
  readonly learningRate: number;
  readonly maxGradNorm: number;
  readonly microBatchCount: number;
  readonly budgets: Readonly<Record<Tier, number>>;
  /** Frees everything, newest first. */
  readonly owned: Owned[];
}

/** Options of one step. */
export interface StepOptions {
  /** Learning rate of this step; default: the optimizer's. */
  readonly learningRate?: number;
}

type State =
  | { readonly kind: 'open' }
  | { readonly kind: 'failed'; readonly error: unknown }
  | { readonly kind: 'closed' };

export class Engine {
  readonly #parts: EngineParts;
  #state: State = { kind: 'open' };
  #step = 0;
  /** Whether some step with a positive learning rate has been seen to change weights. */
  #changeSeen = false;
  #committed: Promise<void> = Promise.resolve();
  #busy = false;
  #lastGood = 'none saved';

  private constructor(parts: EngineParts) {
    this.#parts = parts;
  }

  /**
   * Plans, reserves and loads.
   *
   * @throws BUDGET_TOO_SMALL with the smallest budgets that work, DEVICE_UNAVAILABLE,
   *   CONFIG_INVALID, BLOCK_INVALID, PATH_UNWRITABLE, NVME_FULL, STORE_LOCKED and what the model's
   *   sources throw; nothing stays reserved then
   */
  static async create(options: EngineOptions): Promise<Engine> {
    const owned: Owned[] = [];
    try {
      return new Engine(await assemble(options, owned));
    } catch (error) {
      for (const release of owned.reverse()) await release();
      throw error;
    }
  }

  /** Steps taken. */
  get stepCount(): number {
    return this.#step;
  }

  /** Where everything lives. */
  get plan(): MemoryPlan {
    return this.#parts.plan;
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
    return this.#parts.layout.trainableCount * 16;
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

  /**
   * One optimizer step over the accumulated batch: at most `gradientAccumulationSteps`
   * micro-batches, none larger than the example batch.
   *
   * @throws NON_FINITE naming step, block and the last good state (nothing of the step is
   *   committed); ENGINE_FAILED, ENGINE_CLOSED; what moving bytes throws
   */
  async step(batches: readonly MicroBatch[], options: StepOptions = {}): Promise<StepResult> {
    this.#enter();
    try {
      return await this.#guard(() => this.#runStep(batches, options));
    } finally {
      this.#busy = false;
    }
  }

  /**
   * Mean loss over micro-batches, without gradients. Waits for outstanding updates.
   *
   * @returns the loss and the number of loss terms
   */
  async evaluate(batches: readonly MicroBatch[]): Promise<{ loss: number; terms: number }> {
    this.#enter();
    try {
      return await this.#guard(async () => {
        await this.#committed;
        let lossSum = 0;
        let terms = 0;
        for (const batch of batches) {
          const part = await this.#parts.runner.evaluate(batch);
          lossSum += part.lossSum;
          terms += part.weight;
        }
        return { loss: lossSum / terms, terms };
      });
    } finally {
      this.#busy = false;
    }
  }

  /**
   * Writes a Hugging Face folder: weights in `dtype`, the model's companion files and, if asked
   * for, AdamW's states. Waits for outstanding updates.
   *
   * @throws OUTPUT_FULL, PATH_UNWRITABLE, IO_ERROR; what was there before is unharmed and the
   *   engine stays usable
   */
  async save(folder: string, options: SaveOptions = {}): Promise<void> {
    this.#enter();
    try {
      await this.#guard(() => this.#committed);
      await saveParameters(this.#parts.model, this.#parts.store, folder, options);
      this.#lastGood = `step ${this.#step} in ${folder}`;
    } finally {
      this.#busy = false;
    }
  }

  /** The float32 master values of a parameter (bfloat16 runs included). Waits for updates. */
  async readParameter(name: string): Promise<Float32Array> {
    this.#enter();
    try {
      return await this.#guard(async () => {
        await this.#committed;
        return this.#parts.store.readMaster(name);
      });
    } finally {
      this.#busy = false;
    }
  }

  /** The gradient of the last step, before clipping. Waits for updates. */
  async readGradient(name: string): Promise<Float32Array> {
    this.#enter();
    try {
      return await this.#guard(async () => {
        await this.#committed;
        const target = new Float32Array(this.#parts.store.address(name).length);
        await this.#parts.store.copyState(name, 'grad', 0, target);
        return target;
      });
    } finally {
      this.#busy = false;
    }
  }

  /** Waits until every step handed in is committed. */
  async drain(): Promise<void> {
    this.#check();
    await this.#guard(() => this.#committed);
  }

  /** Ends workers, frees memory, removes the run's NVMe files. Idempotent. */
  async close(): Promise<void> {
    if (this.#state.kind === 'closed') return;
    this.#state = { kind: 'closed' };
    await this.#committed.catch(() => undefined);
    const failures: unknown[] = [];
    for (const release of this.#parts.owned.reverse()) {
      try {
        await release();
      } catch (error) {
        failures.push(error);
      }
    }
    if (failures.length > 0) throw failures[0];
  }

  async #runStep(batches: readonly MicroBatch[], options: StepOptions): Promise<StepResult> {
    const { microBatchCount, runner, sweep, writer, adamw, layout } = this.#parts;
    if (batches.length < 1 || batches.length > microBatchCount) {
      throw new SpillwayError(
        'DATA_INVALID',
        `a step takes 1 to ${microBatchCount} micro-batches; it was given ${batches.length}`,
      );
    }
    const step = this.#step + 1;
    const learningRate = options.learningRate ?? this.#parts.learningRate;
    const clips = this.#parts.maxGradNorm > 0;
    const base = {
      options: adamw,
      step,
      learningRate,
      gradScale: 1,
      assertChange: !this.#changeSeen && learningRate > 0,
    };
    const trainable = layout.groups.filter((group) => group.trainable);
    const onComplete = (groups: readonly ParameterGroup[]): void => {
      if (!clips) sweep.start(groups, base);
    };
    const previous = this.#committed;
    const loss = await runner.run(step - 1, batches, onComplete);
    await previous;
    const gradNorm = gradientNorm(writer.allLeaves());
    const settings: UpdateSettings = clips
      ? { ...base, gradScale: clipCoefficient(gradNorm, this.#parts.maxGradNorm) }
      : base;
    if (clips) sweep.start(trainable, settings);
    const committed = this.#commit(settings);
    this.#committed = committed;
    this.#step = step;
    return { step, loss, gradNorm, committed };
  }

  #commit(settings: UpdateSettings): Promise<void> {
    const committed = this.#parts.sweep.settle(settings).then(
      () => {
        if (settings.assertChange) this.#changeSeen = true;
      },
      (error: unknown) => {
        this.#fail(error);
        throw error;
      },
    );
    committed.catch(() => undefined); // The caller, the next step or `drain` reports it.
    return committed;
  }

  /** Runs `body`; an error makes the engine refuse everything but `close`. */
  async #guard<T>(body: () => Promise<T>): Promise<T> {
    try {
      return await body();
    } catch (error) {
      const told = this.#explain(error);
      this.#fail(told);
      throw told;
    }
  }

  /** Adds step and last good state to a non-finite loss or gradient. */
  #explain(error: unknown): unknown {
    if (!isCoded(error) || error.code !== 'NON_FINITE') return error;
    return new SpillwayError(
      'NON_FINITE',
      `${error.message} in step ${this.#step + 1}; nothing of this step is committed, the last good state is ${this.#lastGood}`,
      { ...error.facts, step: this.#step + 1 },
      error,
    );
  }

  #fail(error: unknown): void {
    if (this.#state.kind === 'open') this.#state = { kind: 'failed', error };
  }

  #check(): void {
    if (this.#state.kind === 'closed') {
      throw new SpillwayError('ENGINE_CLOSED', 'the engine is closed; create another one');
    }
    if (this.#state.kind === 'failed') {
      const { error } = this.#state;
      throw new SpillwayError(
        'ENGINE_FAILED',
        `an earlier call failed; only close() is possible now (${formatError(error)})`,
        {},
        error,
      );
    }
  }

  #enter(): void {
    this.#check();
    if (this.#busy) {
      throw new SpillwayError(
        'ENGINE_FAILED',
        'another call on this engine is running; await it first',
      );
    }
    this.#busy = true;
  }
}

function budgetsOf(options: EngineOptions): Record<Tier, number> {
  const parse = (value: number | string | undefined): number | undefined =>
    value === undefined ? undefined : parseByteSize(value);
  const resolved = resolveBudgets({
    device_memory: parse(options.deviceMemory),
    host_memory: parse(options.hostMemory),
    nvme_memory: parse(options.nvmeMemory),
    nvme_path: pathsOf(options),
  });
  return {
    device: resolved.deviceMemory,
    host: resolved.hostMemory,
    nvme: resolved.nvmeMemory,
  };
}

function pathsOf(options: EngineOptions): string[] {
  const { nvmePath } = options;
  if (nvmePath === undefined) return [];
  return typeof nvmePath === 'string' ? [nvmePath] : [...nvmePath];
}

/** Plans where everything lives. */
function planFor(
  options: EngineOptions,
  device: Device,
  layout: ParameterLayout,
  budgets: Readonly<Record<Tier, number>>,
): { plan: MemoryPlan; slotBytes: (block: number) => number; staging: StagingShape } {
  const { model, exampleBatch } = options;
  const dtype = options.dtype ?? 'float32';
  const profiles = probeWorkspaces(device, model.blocks, layout, exampleBatch);
  const workers = workersOf(options);
  const trainable = layout.groups.filter((group) => group.trainable);
  const lengths = trainable.flatMap((group) => group.shards.map((shard) => shard.length));
  const maxShardLength = lengths.reduce((most, length) => Math.max(most, length), 1);
  const plan = planMemory({
    blocks: model.blocks,
    layout,
    profiles,
    budgets,
    dtype,
    microBatchCount: options.gradientAccumulationSteps ?? 1,
    order: options.microBatchOrder === 'horizontal' ? 'horizontal' : 'vertical',
    offloadParam: options.offloadParam ?? 'auto',
    offloadOptimizer: options.offloadOptimizer ?? 'auto',
    hostAddressableDevice: device.capabilities.hostAddressable,
    nvmePathCount: pathsOf(options).length,
    rowGatherBytes: rowGathersOf(options, layout).map(({ rows, columns }) => rows * columns * 4),
    workers,
    optimizerStagingBytes: (depth, nvmeStates) =>
      stagingBytes({ dtype, depth, nvmeStates, maxShardLength, workers }),
  });
  const staging: StagingShape = {
    dtype,
    nvmeStates: plan.nvmeStates,
    depth: plan.optimizerDepth,
    maxShardLength,
  };
  return { plan, slotBytes: (block) => profiles[block - 1]?.outputBytes ?? 0, staging };
}

/** Trainable tables that are read by rows, with the most rows of one micro-batch. */
function rowGathersOf(
  options: EngineOptions,
  layout: ParameterLayout,
): { name: string; rows: number; columns: number }[] {
  const [first] = options.model.blocks;
  if (first?.kind !== 'row') return [];
  return first.gathers.flatMap((gather) => {
    const address = layout.params.get(gather.param);
    if (address === undefined || address.spec.trainable === false) return [];
    return [
      {
        name: gather.param,
        rows: gather.indices(options.exampleBatch.fields).length,
        columns: address.length / (address.spec.shape[0] ?? 1),
      },
    ];
  });
}

function workersOf(options: EngineOptions): number {
  return options.optimizerWorkers ?? Math.min(2, availableParallelism());
}

async function createVolume(
  options: EngineOptions,
  plan: MemoryPlan,
  budgets: Readonly<Record<Tier, number>>,
  logger: Logger,
): Promise<NvmeVolume | undefined> {
  const { nvmeRequest } = plan;
  if (nvmeRequest.states.length + nvmeRequest.scratch.length === 0) return undefined;
  let backend = options.io?.backend;
  if (backend === undefined) {
    const choice = createIoBackend();
    backend = choice.backend;
    if (choice.reason !== undefined) {
      warnOnce(
        logger,
        'io-backend',
        `NVMe files go through the thread pool instead of io_uring (${choice.reason}); spillway doctor says what that costs`,
      );
    }
  }
  return NvmeVolume.create({
    paths: pathsOf(options),
    runId: options.runId ?? `run-${process.pid}-${randomBytes(4).toString('hex')}`,
    backend,
    budgetBytes: budgets.nvme,
    layout: createLayout(nvmeRequest),
  });
}

/** Builds everything; what it has built is in `owned` when it throws. */
async function assemble(options: EngineOptions, owned: Owned[]): Promise<EngineParts> {
  const { model } = options;
  const logger = options.logger ?? silentLogger;
  const dtype: ComputeDtype = options.dtype ?? 'float32';
  const budgets = budgetsOf(options);
  const layout = layoutParameters(model.blocks, options.subGroupSize ?? DEFAULTS.subGroupSize);
  const device = await createDevice(options.device ?? 'cpu', { budgetBytes: budgets.device });
  owned.push(() => device.dispose());
  const { plan, slotBytes, staging } = planFor(options, device, layout, budgets);
  device.ledger.resetPeak();
  const host = HostPool.create({ budgetBytes: budgets.host });
  owned.push(() => host.dispose());
  const volume = await createVolume(options, plan, budgets, logger);
  if (volume !== undefined) owned.push(() => volume.dispose({ remove: true }));
  const tiers = new TierManager({ device, host, volume, stagingCount: plan.stagingCount });
  owned.push(() => tiers.staging.dispose());
  const store = new ParameterStore(tiers, layout, plan, dtype);
  owned.push(() => store.dispose());
  const activations = new ActivationStore(tiers, plan, slotBytes);
  owned.push(() => activations.dispose());
  const rows = new Map<string, RowGradients>();
  owned.push(() => [...rows.values()].forEach((one) => one.dispose()));
  const microBatchCount = options.gradientAccumulationSteps ?? 1;
  for (const gather of rowGathersOf(options, layout)) {
    const size = { rowsPerMicroBatch: gather.rows, microBatchCount, columns: gather.columns };
    rows.set(gather.name, new RowGradients(host, { ...size, label: gather.name }));
  }
  const writer = new GradientWriter(tiers, store, model.blocks, plan);
  owned.push(() => writer.dispose());
  const pool = await OptimizerPool.create({
    workers: workersOf(options),
    arena: host,
    staging,
    io: options.io?.backend.kind === 'simulated' ? 'blocking' : 'auto',
    ...(options.io?.workerFaults === undefined ? {} : { faults: options.io.workerFaults }),
    ...(volume === undefined ? {} : { filePaths: volume.filePaths }),
  });
  owned.push(() => pool.close());
  await store.initialise(model);
  if (volume !== undefined) {
    await volume.sealHeaders(0, 0);
    const directory = ShardDirectory.open(dirname(volume.filePaths[0] ?? ''));
    owned.push(() => directory.close());
    await directory.replace(directoryRecords(volume.layout, 0), {
      modelFingerprint: modelFingerprint(model.blocks),
      generation: 0,
    });
  }
  const sweep = new UpdateSweep(tiers, store, pool);
  const seed = options.seed ?? DEFAULTS.seed;
  const { blocks } = model;
  const optimizer = options.optimizer ?? {};
  return {
    model,
    tiers,
    layout,
    plan,
    store,
    writer,
    runner: new StepRunner({ blocks, plan, tiers, store, activations, writer, rows, sweep, seed }),
    sweep,
    pool,
    adamw: {
      beta1: optimizer.beta1 ?? ADAMW_DEFAULTS.beta1,
      beta2: optimizer.beta2 ?? ADAMW_DEFAULTS.beta2,
      epsilon: optimizer.epsilon ?? ADAMW_DEFAULTS.epsilon,
      weightDecay: optimizer.weightDecay ?? ADAMW_DEFAULTS.weightDecay,
    },
    learningRate: optimizer.learningRate ?? DEFAULTS.learningRate,
    maxGradNorm: optimizer.maxGradNorm ?? DEFAULTS.maxGradNorm,
    microBatchCount,
    budgets,
    owned,
  };
}
