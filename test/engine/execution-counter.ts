/**
 * @file Counts what the steps of a run move and hold where it happens: bytes that the native device
 * is given and asked for, requests that reach the disk, what workers' rings completed; by the
 * operation on whose behalf, so that a plan can be held against it operation by operation.
 *
 * Nothing here knows the plan but for the operation that runs: an asynchronous context follows it.
 * Bytes that a device copies from its own memory cross no link and do not count.
 */
import { AsyncLocalStorage } from 'node:async_hooks';
import { vi } from 'vitest';
import { LINKS, NORM_LEAF_ELEMENTS, TIERS, type Link, type Tier } from '../../core/types.js';
import { ComputeRunner } from '../../src/engine/compute-runner.js';
import type { Engine } from '../../src/engine/engine.js';
import { ParameterLoader } from '../../src/engine/parameter-loader.js';
import { ShardUpdates } from '../../src/engine/shard-updates.js';
import type { Span } from '../../src/engine/step-executor.js';
import { StepTransfers } from '../../src/engine/step-transfers.js';
import type { MicroBatch, Model } from '../../src/model/block.js';
import { OptimizerPool } from '../../src/optim/optimizer-pool.js';
import { layoutParameters, type ParameterLayout } from '../../src/plan/parameter-layout.js';
import type { Action, Operation, Phase } from '../../src/plan/step-plan.js';
import { NativeDevice } from '../../tiers/device/native/native-device.js';
import { createIoBackend } from '../../tiers/nvme/create-io-backend.js';
import type { IoBackend } from '../../tiers/nvme/io-backend.js';

type LinkBytes = Record<Link, number>;

/** Phases of a step, and of a run. */
type Part = Phase | 'load' | 'evaluation';

/** What a run's steps moved, by phase and kind of operation, and the most that tiers held, by phase. */
export interface RunCounts {
  readonly moved: Readonly<Record<string, LinkBytes>>;
  readonly peaks: Readonly<Record<string, Readonly<Record<Tier, number>>>>;
}

class Tally {
  readonly moved: Record<string, LinkBytes> = {};
  readonly peaks: Record<string, Record<Tier, number>> = {};

  add({ part, action }: Work, link: Link, bytes: number): void {
    if (bytes === 0) return;
    const name = `${part} ${action.kind}`;
    this.moved[name] ??= { upload: 0, download: 0, nvme_read: 0, nvme_write: 0 };
    this.moved[name][link] += bytes;
  }

  hold(part: Part, held: Partial<Readonly<Record<Tier, number>>>): void {
    const peaks = (this.peaks[part] ??= { device: 0, host: 0, nvme: 0 });
    for (const tier of TIERS) peaks[tier] = Math.max(peaks[tier], held[tier] ?? 0);
  }

  get counts(): RunCounts {
    const { moved, peaks } = this;
    return { moved, peaks };
  }
}

/** A method before it is replaced, to be called with its `this`. */
function originalOf<T, K extends keyof T>(prototype: T, name: K): T[K] {
  return prototype[name];
}

/** What an asynchronous context works for: an operation of a step, a plan on the meta device, or rows
 * of a table that lives on the device, which pass through the host's memory on their way. */
type Purpose = Work | 'planning' | 'device to device';

/** An operation, and the part of the run that it belongs to. */
interface Work {
  readonly part: Part;
  readonly action: Action;
}

/** Counts what one engine on the native device does that is created while this is installed. */
export class ExecutionCounter {
  readonly #executed = new Tally();
  readonly #planned = new Tally();
  readonly #purpose = new AsyncLocalStorage<Purpose>();
  /** What was planned. */
  readonly #work = new Map<Action, Work>();
  /** Memory of the device that the CPU addresses. */
  readonly #deviceMemory = new Set<ArrayBufferLike>();
  readonly #layout: ParameterLayout;
  #engine: Engine | undefined;
  #device: NativeDevice | undefined;

  private constructor(layout: ParameterLayout) {
    this.#layout = layout;
  }

  /** `vi.restoreAllMocks` ends it. */
  static install({ blocks }: Model): ExecutionCounter {
    const counter = new ExecutionCounter(layoutParameters(blocks, NORM_LEAF_ELEMENTS));
    counter.#followOperations();
    const create = NativeDevice.create.bind(NativeDevice);
    vi.spyOn(NativeDevice, 'create').mockImplementation((options) =>
      counter.#watch(create(options)),
    );
    return counter;
  }

  /** Of the run until now. */
  get executed(): RunCounts {
    return this.#executed.counts;
  }

  /** What the plan says about it. */
  get planned(): RunCounts {
    return this.#planned.counts;
  }

  /** A step over these micro-batches is about to begin. */
  async announce(engine: Engine, batches: readonly MicroBatch[]): Promise<void> {
    this.#engine = engine;
    const { operations } = engine.stepPlan(batches);
    for (const operation of operations) this.#plan(operation, operation.phase);
    const device = await this.#purpose.run('planning', () => engine.devicePeaks(batches));
    const { host, nvme } = engine.plan.peakBytes;
    for (const phase of new Set(operations.map((operation) => operation.phase))) {
      this.#planned.hold(phase, { device: device![phase], host, nvme });
    }
    if (this.#executed.peaks['load'] !== undefined) return;
    this.#executed.hold('load', engine.peakBytes);
    // All that is there for the whole run, as between two steps.
    this.#planned.hold('load', { device: device!.update, host, nvme });
  }

  /** Evaluates micro-batches, as many at most as a step has. */
  async evaluate(
    engine: Engine,
    batches: readonly MicroBatch[],
  ): Promise<{ readonly loss: number }> {
    for (const operation of engine.evaluationPlan(batches).operations) {
      this.#plan(operation, 'evaluation');
    }
    const device = await this.#purpose.run('planning', () => engine.evaluationPeak(batches));
    this.#planned.hold('evaluation', { ...engine.plan.peakBytes, device: device! });
    const result = await engine.evaluate(batches);
    this.#executed.hold('evaluation', engine.heldBytes);
    return result;
  }

  /** The disk of the main thread, counted. */
  countedDisk(): IoBackend {
    const { backend } = createIoBackend();
    const [read, write] = [backend.read.bind(backend), backend.write.bind(backend)];
    backend.read = (file, offset, target) => {
      this.#count('nvme_read', target.byteLength);
      return read(file, offset, target);
    };
    backend.write = (file, offset, source) => {
      this.#count('nvme_write', source.byteLength);
      return write(file, offset, source);
    };
    return backend;
  }

  /** Notes what host and NVMe hold when an operation, or a piece of one, is over. */
  readonly noteHeld = ({ operation, isEvaluation }: Span, { heldBytes }: Engine): void => {
    const { host, nvme } = heldBytes;
    this.#executed.hold(isEvaluation ? 'evaluation' : operation.phase, { host, nvme });
  };

  /** All steps and their updates are over. */
  noteEnd({ heldBytes }: Engine): void {
    this.#executed.hold('update', heldBytes);
  }

  #plan({ action, bytes }: Operation, part: Part): void {
    const work = { part, action };
    this.#work.set(action, work);
    for (const link of LINKS) this.#planned.add(work, link, bytes[link] ?? 0);
  }

  #count(link: Link, bytes: number): void {
    const purpose = this.#purpose.getStore();
    // Without one: loading, evaluating, reading.
    if (typeof purpose === 'object') this.#executed.add(purpose, link, bytes);
  }

  #countUpload(source: ArrayBufferView): void {
    if (!this.#deviceMemory.has(source.buffer)) this.#count('upload', source.byteLength);
  }

  #watch(device: NativeDevice): NativeDevice {
    this.#device = device;
    const reserve = device.reserve.bind(device);
    device.reserve = (byteLength, label) => {
      const region = reserve(byteLength, label);
      const write = region.write.bind(region);
      region.write = (byteOffset, source, type, kept) => {
        this.#countUpload(source);
        return write(byteOffset, source, type, kept);
      };
      return region;
    };
    const upload = device.upload.bind(device);
    device.upload = (data, shape, label) => {
      this.#countUpload(data);
      return upload(data, shape, label);
    };
    const download = device.download.bind(device);
    device.download = (tensor, offset, target) => {
      this.#count('download', target.byteLength);
      return download(tensor, offset, target);
    };
    const lease = device.arena.lease.bind(device.arena);
    device.arena.lease = (byteLength, label) => {
      const leased = lease(byteLength, label);
      this.#deviceMemory.add(leased.bytes.buffer);
      return leased;
    };
    return device;
  }

  #followOperations(): void {
    const purpose = this.#purpose;
    const run = originalOf(ComputeRunner.prototype, 'run');
    const works = this.#work;
    const computed = (work: Work, body: () => Promise<void>) =>
      purpose.run(work, () => this.#computed(work, body));
    vi.spyOn(ComputeRunner.prototype, 'run').mockImplementation(function (
      this: ComputeRunner,
      operation,
      action,
    ) {
      if (purpose.getStore() === 'planning') return run.call(this, operation, action);
      for (const output of operation.frees ?? []) this.free(output);
      const body = () => run.call(this, { ...operation, frees: [] }, action);
      return computed(works.get(action)!, body);
    });
    const transfer = originalOf(StepTransfers.prototype, 'run');
    vi.spyOn(StepTransfers.prototype, 'run').mockImplementation(function (
      this: StepTransfers,
      ...args
    ) {
      return purpose.run(works.get(args[0])!, () => transfer.apply(this, args));
    });
    const fetchRows = originalOf(ParameterLoader.prototype, 'fetchRows');
    const isOnDevice = (name: string): boolean =>
      this.#engine!.plan.homes[this.#layout.params.get(name)!.group]!.param === 'device';
    vi.spyOn(ParameterLoader.prototype, 'fetchRows').mockImplementation(function (
      this: ParameterLoader,
      ...args
    ) {
      const run = () => fetchRows.apply(this, args);
      return isOnDevice(args[0]) ? purpose.run('device to device', run) : run();
    });
    const update = originalOf(ShardUpdates.prototype, 'update');
    vi.spyOn(ShardUpdates.prototype, 'update').mockImplementation(function (
      this: ShardUpdates,
      group,
      shard,
      ...rest
    ) {
      const { id, length } = shard;
      const action = { kind: 'update', shard: id, group: group.index, length } as const;
      return purpose.run({ part: 'update', action }, () =>
        update.call(this, group, shard, ...rest),
      );
    });
    const submit = originalOf(OptimizerPool.prototype, 'update');
    const count = (link: Link, bytes: number): void => this.#count(link, bytes);
    vi.spyOn(OptimizerPool.prototype, 'update').mockImplementation(async function (
      this: OptimizerPool,
      ...args
    ) {
      const result = await submit.apply(this, args);
      count('nvme_read', result.nvmeReadBytes);
      count('nvme_write', result.nvmeWrittenBytes);
      return result;
    });
  }

  /** Runs a compute operation and notes how high the device's memory rose. */
  async #computed({ part }: Work, body: () => Promise<void>): Promise<void> {
    const { ledger } = this.#device!;
    ledger.resetPeak();
    await body();
    this.#executed.hold(part, { device: ledger.resetPeak() });
  }
}
