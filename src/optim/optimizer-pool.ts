/**
 * @file The optimizer's worker threads: a piscina pool that updates shards over shared memory.
 *
 * The pool owns its threads, their rings and one staging lease per worker slot. It does not own
 * states, descriptors or checksum tables: the caller keeps those alive, and unread and unwritten by
 * others, until the update's promise settles.
 *
 * A job waits in our own queue until a slot is free; piscina never holds more jobs than threads.
 * Cancelling raises a flag that the worker polls once per tile: a thread is never ended while it
 * works, since its requests would go on writing into memory that has been given back.
 */
import type { Piscina } from 'piscina';

import { assert, SpillwayError } from '../../core/errors.js';
import type { MemoryArena, MemoryLease } from '../../tiers/host/host-buffer.js';
import type { ShardUpdate, ShardUpdateResult } from './shard-update.js';
import { slotStagingBytes, type StagingShape } from './staging.js';
import { fromWireError, type WireError } from './wire-error.js';
import type { UpdateTask, WorkerOutcome, WorkerReady, WorkerSetup } from './worker-protocol.js';
import { onEachWorker, startThreads, workerFileOfThisBuild } from './worker-threads.js';

/** Most jobs that wait for a worker: more than any model has shards. */
const MAX_QUEUED_UPDATES = 2 ** 20;

export interface OptimizerPoolOptions {
  /** Threads, at least 1; they live until `close`. */
  readonly workers: number;
  /** Where staging memory is leased: `stagingBytes({ ...staging, workers })` in all. */
  readonly arena: MemoryArena;
  readonly staging: StagingShape;
  /** How workers reach NVMe. `ring` refuses where io_uring is missing; `auto` takes what works. */
  readonly io: WorkerSetup['io'];
  /** Faults to inject into the workers' I/O (tests). */
  readonly faults?: WorkerSetup['faults'];
  /** Paths by `fileIndex`, for error messages. */
  readonly filePaths?: readonly string[];
  /** Another worker module (tests). */
  readonly workerFile?: string;
}

/** Room for one running job: its staging memory and the word that cancels it. */
interface Slot {
  readonly index: number;
  readonly staging: Uint8Array<SharedArrayBuffer>;
}

/** A job that has not settled. */
interface PendingUpdate {
  readonly job: ShardUpdate;
  readonly signal: AbortSignal | undefined;
  readonly resolve: (result: ShardUpdateResult) => void;
  readonly reject: (reason: unknown) => void;
  readonly onStart: (() => void) | undefined;
  readonly onAbort: () => void;
  /** Where it runs; undefined while it waits. */
  slot: Slot | undefined;
}

/** Runs shard updates on exactly `workers` threads. */
export class OptimizerPool {
  readonly workers: number;
  /** How the workers reach NVMe; `none` when no state may be there. */
  readonly io: WorkerReady['io'];
  readonly #piscina: Piscina;
  readonly #leases: readonly MemoryLease[];
  readonly #filePaths: readonly string[];
  readonly #cancel: Int32Array<SharedArrayBuffer>;
  readonly #freeSlots: Slot[];
  /** In order of submission; a set, so that an aborted job leaves in constant time. */
  readonly #queue = new Set<PendingUpdate>();
  readonly #running = new Set<Promise<void>>();
  #failure: SpillwayError | undefined;
  #closing: Promise<void> | undefined;

  private constructor(
    piscina: Piscina,
    leases: readonly MemoryLease[],
    io: WorkerReady['io'],
    options: OptimizerPoolOptions,
  ) {
    this.workers = options.workers;
    this.io = io;
    this.#piscina = piscina;
    this.#leases = leases;
    this.#filePaths = options.filePaths ?? [];
    this.#cancel = new Int32Array(new SharedArrayBuffer(4 * options.workers));
    const noStaging = new Uint8Array(new SharedArrayBuffer(0));
    this.#freeSlots = Array.from({ length: options.workers }, (_, index) => ({
      index,
      staging: leases[index]?.bytes ?? noStaging,
    }));
    piscina.on('error', (error) => this.#fail(error));
  }

  /**
   * Leases the staging memory and starts the threads.
   *
   * @throws HOST_OUT_OF_MEMORY (the arena's), WORKER_FAILED, and what opening a worker's I/O
   *   throws; nothing is left behind then
   */
  static async create(options: OptimizerPoolOptions): Promise<OptimizerPool> {
    const { workers, staging } = options;
    assert(Number.isInteger(workers) && workers >= 1, 'at least one optimizer worker', { workers });
    const leases = leaseStaging(options);
    let piscina: Piscina | undefined;
    try {
      const setup: WorkerSetup = {
        io: options.io,
        usesNvme: staging.nvmeStates.length > 0,
        depth: staging.depth,
        ...(options.faults !== undefined && { faults: options.faults }),
      };
      piscina = startThreads(workers, setup, options.workerFile ?? workerFileOfThisBuild());
      const io = await openWorkers(piscina, workers);
      return new OptimizerPool(piscina, leases, io, options);
    } catch (error) {
      await piscina?.destroy();
      for (const lease of leases) lease.dispose();
      throw error;
    }
  }

  /**
   * Updates one shard; its states hold the new values when the promise resolves. Jobs start in the
   * order of submission; two jobs in the pool must not share a state.
   *
   * After a rejection the shard may be updated in part. Only WORKER_FAILED ends the whole pool.
   *
   * @param signal rejects with the signal's reason: at once while the job waits, else after the
   *   tile in work
   * @param onStart called when a thread takes the job up
   * @throws STATE_CORRUPT, IO_ERROR, IO_SHORT, NVME_FULL with state, file, offset and chunk;
   *   WORKER_FAILED when its thread died, or another's had before; ENGINE_CLOSED
   */
  update(job: ShardUpdate, signal?: AbortSignal, onStart?: () => void): Promise<ShardUpdateResult> {
    if (this.#closing !== undefined) return Promise.reject(closedError());
    if (this.#failure !== undefined) return Promise.reject(this.#failure);
    if (signal?.aborted === true) return Promise.reject(signal.reason as Error);
    assert(this.#queue.size < MAX_QUEUED_UPDATES, 'optimizer queue within its limit');
    return new Promise((resolve, reject) => {
      const pending: PendingUpdate = {
        job,
        signal,
        resolve,
        reject,
        onStart,
        onAbort: () => this.#abort(pending),
        slot: undefined,
      };
      signal?.addEventListener('abort', pending.onAbort);
      this.#queue.add(pending);
      this.#pump();
    });
  }

  /** Waits until no job waits or runs. Their outcome goes to whoever awaits `update`. */
  async drain(): Promise<void> {
    while (this.#running.size > 0) await Promise.all(this.#running);
  }

  /**
   * Cancels what waits and what runs (ENGINE_CLOSED), ends the threads, gives the staging memory
   * back. Call `drain` first to let updates finish. Idempotent; never rejects.
   */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  #pump(): void {
    for (const pending of this.#queue) {
      const slot = this.#freeSlots.pop();
      if (slot === undefined) return;
      this.#queue.delete(pending);
      pending.slot = slot;
      const running = this.#run(pending, slot).finally(() => {
        pending.signal?.removeEventListener('abort', pending.onAbort);
        this.#running.delete(running);
        this.#freeSlots.push(slot);
        this.#pump();
      });
      this.#running.add(running);
    }
  }

  /** Runs one job and settles it; never rejects. */
  async #run(pending: PendingUpdate, slot: Slot): Promise<void> {
    const { job, signal, resolve, reject } = pending;
    Atomics.store(this.#cancel, slot.index, 0);
    pending.onStart?.();
    const { index: slotIndex, staging } = slot;
    const task: UpdateTask = { job, staging, cancel: this.#cancel, slotIndex };
    try {
      const outcome = (await this.#piscina.run(task, {
        name: 'update',
      })) as WorkerOutcome<ShardUpdateResult>;
      if (outcome.kind === 'done') resolve(outcome.value);
      else if (outcome.kind === 'failed') reject(this.#rebuild(outcome.error));
      else reject(signal?.aborted === true ? signal.reason : closedError());
    } catch (error) {
      reject(this.#fail(error));
    }
  }

  #abort(pending: PendingUpdate): void {
    if (pending.slot !== undefined) Atomics.store(this.#cancel, pending.slot.index, 1);
    else this.#drop(pending, pending.signal?.reason);
  }

  /** Rejects a job that waits. */
  #drop(pending: PendingUpdate, reason: unknown): void {
    this.#queue.delete(pending);
    pending.signal?.removeEventListener('abort', pending.onAbort);
    pending.reject(reason);
  }

  /** Ends the pool: a dead thread leaves its shard half updated, so nothing may follow. */
  #fail(cause: unknown): SpillwayError {
    this.#failure ??= workerFailed(cause);
    for (const pending of this.#queue) this.#drop(pending, this.#failure);
    return this.#failure;
  }

  #rebuild(error: WireError): SpillwayError {
    const { fileIndex } = error.facts;
    const path = typeof fileIndex === 'number' ? this.#filePaths[fileIndex] : undefined;
    return fromWireError(error, path === undefined ? {} : { path });
  }

  async #close(): Promise<void> {
    for (const pending of this.#queue) this.#drop(pending, closedError());
    for (let slot = 0; slot < this.workers; slot += 1) Atomics.store(this.#cancel, slot, 1);
    await this.drain();
    // After a failure a thread may be missing or half started; its ring closes with the thread.
    if (this.#failure === undefined) {
      await Promise.allSettled(onEachWorker(this.#piscina, this.workers, 'stop'));
    }
    await this.#piscina.destroy();
    for (const lease of this.#leases) lease.dispose();
  }
}

/** One lease per slot, or none when no state may be on NVMe. */
function leaseStaging({ arena, staging, workers }: OptimizerPoolOptions): MemoryLease[] {
  const slotBytes = slotStagingBytes(staging);
  const leases: MemoryLease[] = [];
  if (slotBytes === 0) return leases;
  try {
    for (let slot = 0; slot < workers; slot += 1) {
      leases.push(arena.lease(slotBytes, `optimizer staging ${slot}`));
    }
  } catch (error) {
    for (const lease of leases) lease.dispose();
    throw error;
  }
  return leases;
}

/** Opens each thread's I/O. @throws WORKER_FAILED when a thread does not come up */
async function openWorkers(piscina: Piscina, workers: number): Promise<WorkerReady['io']> {
  let outcomes: WorkerOutcome<WorkerReady>[];
  try {
    outcomes = (await Promise.all(
      onEachWorker(piscina, workers, 'start'),
    )) as WorkerOutcome<WorkerReady>[];
  } catch (cause) {
    throw workerFailed(cause);
  }
  const ready = outcomes.map((outcome) => {
    if (outcome.kind === 'failed') throw fromWireError(outcome.error);
    assert(outcome.kind === 'done', 'a worker starts or fails');
    return outcome.value;
  });
  const threads = new Set(ready.map(({ threadId }) => threadId));
  assert(threads.size === workers, 'each start ran on its own thread', { threads: threads.size });
  return ready[0]!.io;
}

function workerFailed(cause: unknown): SpillwayError {
  const reason = cause instanceof Error ? cause.message : String(cause);
  return new SpillwayError(
    'WORKER_FAILED',
    `an optimizer thread died: ${reason}; resume from the last checkpoint`,
    {},
    cause,
  );
}

function closedError(): SpillwayError {
  return new SpillwayError(
    'ENGINE_CLOSED',
    'the optimizer pool was closed before this update ended',
  );
}
