/**
 * @file The native device's arena and its three in-order queues, as TypeScript drives them.
 *
 * Every command gets the next number of its queue, counted here in step with native/queue.h. An
 * event is a queue and a number: it has happened once the queue has completed so many commands.
 * Completions reach JavaScript in batches: one signal wakes it for the first number that somebody
 * waits for, and every promise whose event has happened resolves then. The process stays alive
 * while a promise is pending, and only then.
 *
 * Owns the native runtime: queues' threads and arena. Does not own memory that commands point to
 * outside the arena, but keeps it alive (`held`) until the event that ends its use.
 */
import { assert, SpillwayError } from '../../../core/errors.js';
import { native, type NativeAddon, type RuntimeHandle } from '../../native/binding.js';

/** The queues; numbers of `QueueIndex` in native/device-runtime.cc. */
export const COMPUTE = 0;
export const UPLOAD = 1;
export const DOWNLOAD = 2;
export type QueueId = typeof COMPUTE | typeof UPLOAD | typeof DOWNLOAD;

/** All queues. */
export const QUEUES = [COMPUTE, UPLOAD, DOWNLOAD] as const;

/** How an upload reads its source; numbers of `SourceType` in native/queue.h. */
export const SOURCE = { bytes: 0, bfloat16: 1, float16: 2 } as const;

/** Most arguments of one kernel; `kMostArgs` in native/queue.h. */
export const MAX_KERNEL_ARGS = 4096;

/** Three in-order queues over one arena. A number is that of a queue's command, from 1 on. */
export interface DeviceQueues {
  /** Address of the arena's first byte. */
  readonly baseAddress: number;
  /** Nothing runs: commands are counted, and memory has addresses but no bytes. */
  readonly isMeta: boolean;
  readonly isClosed: boolean;
  /** Number of the newest command of `queue`. */
  submitted(queue: QueueId): number;
  /** Number of the newest command of `queue` that has run. */
  completed(queue: QueueId): number;
  /** Appends a kernel; offsets among `args` are addresses. Waits while the queue is full. */
  launch(kernelId: number, args: readonly number[]): void;
  /** Makes what is appended to `queue` from now on wait for `sequence` commands of `other`. */
  wait(queue: QueueId, other: QueueId, sequence: number): void;
  /** Copies `bytes` now, and to `address` when the compute queue gets there. */
  write(address: number, bytes: Uint8Array): void;
  /** Appends a copy to the upload queue; `source` is held until it has run. */
  upload(address: number, source: Uint8Array, type: 0 | 1 | 2): Promise<void>;
  /** Appends a copy to the download queue; `target` is held until it has run. */
  download(address: number, target: Uint8Array): Promise<void>;
  /** Gives pages of the arena back, on the compute queue. Address and length are whole pages. */
  discard(address: number, byteLength: number): void;
  /** Resolves once `queue` has completed `sequence` commands. */
  done(queue: QueueId, sequence: number, held?: unknown): Promise<void>;
  /** Resolves once everything submitted until now has run. */
  drain(): Promise<void>;
  /** Sleeps until everything that was submitted to `queue` has run. */
  block(queue: QueueId): void;
  /** Copies from `address`, now; call `block` before. */
  read(address: number, target: Uint8Array): void;
  /** Lets threads and arena go, once everything submitted has run. Idempotent. */
  close(): Promise<void>;
  /** The same, asleep until then. Promises of what has run resolve. */
  closeNow(): void;
}

interface Waiting {
  readonly sequence: number;
  readonly resolve: () => void;
  /** Kept reachable until then: a command reads or writes it. */
  readonly held: unknown;
}

export class CommandQueues implements DeviceQueues {
  readonly baseAddress: number;
  readonly isMeta = false;
  readonly #addon: NativeAddon;
  readonly #handle: RuntimeHandle;
  readonly #args = new Float64Array(MAX_KERNEL_ARGS);
  readonly #submitted = [0, 0, 0];
  /** [queue][other]: the last event of `other` that `queue` was told to wait for. */
  readonly #waitedFor = QUEUES.map(() => [0, 0, 0]);
  /** Per queue, ascending. */
  readonly #waiting: Waiting[][] = QUEUES.map(() => []);
  #waitingCount = 0;
  #closed = false;

  private constructor(addon: NativeAddon, arenaBytes: number, threads: number) {
    this.#addon = addon;
    this.#handle = addon.runtimeCreate(arenaBytes, this.#args, threads, () => this.#settle());
    this.baseAddress = addon.runtimeBase(this.#handle);
  }

  /**
   * Starts the queues and reserves the arena.
   *
   * @param threads on which kernels run
   * @throws DEVICE_UNAVAILABLE without the addon; RangeError when the address space is refused
   */
  static create(arenaBytes: number, threads: number): CommandQueues {
    const addon = native();
    if (addon === undefined) {
      throw new SpillwayError(
        'DEVICE_UNAVAILABLE',
        'the native device needs the C++ addon; run npm run build:native, or use the cpu device',
      );
    }
    return new CommandQueues(addon, arenaBytes, threads);
  }

  get isClosed(): boolean {
    return this.#closed;
  }

  submitted(queue: QueueId): number {
    return this.#submitted[queue]!;
  }

  completed(queue: QueueId): number {
    return this.#addon.runtimeCompleted(this.#handle, queue);
  }

  launch(kernelId: number, args: readonly number[]): void {
    const { length } = args;
    assert(length <= MAX_KERNEL_ARGS, 'a kernel has a bounded number of arguments', { length });
    for (let index = 0; index < length; index++) this.#args[index] = args[index]!;
    this.#addon.runtimeLaunch(this.#handle, kernelId, length);
    this.#submitted[COMPUTE]! += 1;
  }

  wait(queue: QueueId, other: QueueId, sequence: number): void {
    if (queue === other || sequence <= this.#waitedFor[queue]![other]!) return;
    this.#waitedFor[queue]![other] = sequence;
    this.#addon.runtimeWait(this.#handle, queue, other, sequence);
    this.#submitted[queue]! += 1;
  }

  write(address: number, bytes: Uint8Array): void {
    this.#addon.runtimeWrite(this.#handle, address, bytes);
    this.#submitted[COMPUTE]! += 1;
  }

  upload(address: number, source: Uint8Array, type: 0 | 1 | 2): Promise<void> {
    this.#addon.runtimeUpload(this.#handle, address, source, type);
    this.#submitted[UPLOAD]! += 1;
    return this.done(UPLOAD, this.submitted(UPLOAD), source);
  }

  download(address: number, target: Uint8Array): Promise<void> {
    this.#addon.runtimeDownload(this.#handle, address, target);
    this.#submitted[DOWNLOAD]! += 1;
    return this.done(DOWNLOAD, this.submitted(DOWNLOAD), target);
  }

  discard(address: number, byteLength: number): void {
    this.#addon.runtimeDiscard(this.#handle, address, byteLength);
    this.#submitted[COMPUTE]! += 1;
  }

  done(queue: QueueId, sequence: number, held?: unknown): Promise<void> {
    if (this.completed(queue) >= sequence) return Promise.resolve();
    return new Promise((resolve) => {
      const waiting = this.#waiting[queue]!;
      let at = waiting.length;
      while (at > 0 && waiting[at - 1]!.sequence > sequence) at -= 1;
      waiting.splice(at, 0, { sequence, resolve, held });
      this.#waitingCount += 1;
      if (this.#waitingCount === 1) this.#addon.runtimeKeepAlive(this.#handle, true);
      if (at === 0) this.#settleQueue(queue);
    });
  }

  async drain(): Promise<void> {
    await Promise.all(QUEUES.map((queue) => this.done(queue, this.submitted(queue))));
  }

  block(queue: QueueId): void {
    this.#addon.runtimeBlock(this.#handle, queue, this.submitted(queue));
  }

  read(address: number, target: Uint8Array): void {
    this.#addon.runtimeRead(this.#handle, address, target);
  }

  /** Joins the threads and frees the arena, once everything submitted has run. Idempotent. */
  async close(): Promise<void> {
    while (!this.#closed && QUEUES.some((queue) => this.completed(queue) < this.submitted(queue))) {
      await this.drain();
    }
    this.closeNow();
  }

  closeNow(): void {
    if (this.#closed) return;
    for (const queue of QUEUES) this.block(queue);
    this.#settle();
    assert(this.#waitingCount === 0, 'everything submitted has run');
    this.#closed = true;
    this.#addon.runtimeClose(this.#handle);
  }

  #settle(): void {
    if (this.#closed) return;
    for (const queue of QUEUES) this.#settleQueue(queue);
  }

  /** Resolves what has happened on `queue`, and asks for a signal for the first that has not. */
  #settleQueue(queue: QueueId): void {
    const waiting = this.#waiting[queue]!;
    for (let first = waiting[0]; first !== undefined; first = waiting[0]) {
      const completed = this.#addon.runtimeWatch(this.#handle, queue, first.sequence);
      if (completed < first.sequence) return;
      let count = 0;
      while (count < waiting.length && waiting[count]!.sequence <= completed) count += 1;
      for (const { resolve } of waiting.splice(0, count)) resolve();
      this.#waitingCount -= count;
      if (this.#waitingCount === 0) this.#addon.runtimeKeepAlive(this.#handle, false);
    }
  }
}
