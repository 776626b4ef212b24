/**
 * @file Asynchronous I/O by io_uring on this thread's event loop: no thread, no copy.
 *
 * At most `depth` requests are in the kernel; more wait here in order. Requests started in one turn
 * are submitted by one system call at the end of the microtask. Completions arrive through the
 * ring's pollable descriptor. Owns the files and the ring; the ring holds each view in flight.
 */
import { SpillwayError, assert } from '../../core/errors.js';
import { native, type AsyncRingHandle, type NativeAddon } from '../native/binding.js';
import { assertTransfer, reserveDataFile, type DataFile } from './data-file.js';
import type { IoBackend, IoFile } from './io-backend.js';
import { closedFailure, errnoFailure, shortFailure } from './io-failure.js';
import { OpenFiles } from './open-files.js';
import { RequestQueue } from './request-queue.js';
import { RING_OP } from './ring-op.js';

/** With 1 MiB requests the disks measured reach their plateau at 4 to 8 in flight. */
const DEFAULT_DEPTH = 8;

interface RingRequest {
  readonly op: 'read' | 'write' | 'flush';
  readonly file: DataFile;
  readonly offset: number;
  readonly view: Uint8Array<SharedArrayBuffer>;
  readonly resolve: () => void;
  readonly reject: (error: SpillwayError) => void;
}

const NO_BYTES = new Uint8Array(new SharedArrayBuffer(0));

export class RingBackend implements IoBackend {
  readonly kind = 'ring';
  readonly depth: number;
  readonly #addon: NativeAddon;
  readonly #ring: AsyncRingHandle;
  readonly #completions: Int32Array<SharedArrayBuffer>;
  readonly #files = new OpenFiles();
  /** By slot. */
  readonly #inFlight: (RingRequest | undefined)[];
  readonly #freeSlots: number[];
  readonly #waiting = new RequestQueue<RingRequest>();
  /** Slots pushed since the last submission, oldest first. */
  #pushed: number[] = [];
  #submitScheduled = false;
  #bytesRead = 0;
  #bytesWritten = 0;
  #disposal: Promise<void> | undefined;
  #whenIdle: (() => void) | undefined;

  /**
   * @param options.depth most requests in the kernel, 1 to 1024
   * @throws DEVICE_UNAVAILABLE when there is no addon or the kernel refuses a ring
   */
  constructor({ depth = DEFAULT_DEPTH }: { readonly depth?: number } = {}) {
    const addon = native();
    if (addon === undefined) {
      throw new SpillwayError('DEVICE_UNAVAILABLE', 'io_uring needs the native addon; build it');
    }
    this.depth = depth;
    this.#addon = addon;
    this.#completions = new Int32Array(new SharedArrayBuffer(8 * depth));
    this.#inFlight = Array.from({ length: depth }, () => undefined);
    this.#freeSlots = Array.from({ length: depth }, (_, slot) => depth - 1 - slot);
    try {
      this.#ring = addon.asyncRingCreate(depth, this.#completions, (count) => {
        this.#complete(count);
      });
    } catch (error) {
      const message = error instanceof Error ? error.message : String(error);
      throw new SpillwayError('DEVICE_UNAVAILABLE', `no io_uring here: ${message}`, {}, error);
    }
  }

  get bytesRead(): number {
    return this.#bytesRead;
  }

  get bytesWritten(): number {
    return this.#bytesWritten;
  }

  open(path: string): Promise<IoFile> {
    return this.#files.open(path);
  }

  async reserve(file: IoFile, byteLength: number): Promise<void> {
    await reserveDataFile(this.#files.of(file), byteLength);
  }

  read(file: IoFile, offset: number, target: Uint8Array<SharedArrayBuffer>): Promise<void> {
    return this.#request('read', file, offset, target);
  }

  write(file: IoFile, offset: number, source: Uint8Array<SharedArrayBuffer>): Promise<void> {
    return this.#request('write', file, offset, source);
  }

  flush(file: IoFile): Promise<void> {
    return this.#request('flush', file, 0, NO_BYTES);
  }

  async close(file: IoFile): Promise<void> {
    const dataFile = this.#files.of(file);
    const used = this.#inFlight.some((request) => request?.file === dataFile);
    assert(!used, 'a file is closed after its requests', { path: file.path });
    await this.#files.close(file);
  }

  /** Rejects what waits for a slot, lets what is in the kernel end, closes files and ring. */
  dispose(): Promise<void> {
    this.#disposal ??= this.#dispose();
    return this.#disposal;
  }

  async #dispose(): Promise<void> {
    this.#files.refuse();
    for (let next = this.#waiting.shift(); next !== undefined; next = this.#waiting.shift()) {
      next.reject(closedFailure());
    }
    if (this.#freeSlots.length < this.depth) {
      await new Promise<void>((resolve) => (this.#whenIdle = resolve));
    }
    this.#addon.asyncRingClose(this.#ring);
    await this.#files.closeAll();
  }

  // Not async: the request must be queued before the caller goes on, and errors of misuse too
  // arrive as a rejection.
  #request(
    op: RingRequest['op'],
    ioFile: IoFile,
    offset: number,
    view: Uint8Array<SharedArrayBuffer>,
  ): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#files.assertOpen();
      const file = this.#files.of(ioFile);
      if (op !== 'flush') assertTransfer(file, offset, view);
      this.#waiting.push({ op, file, offset, view, resolve, reject });
      this.#scheduleSubmit();
    });
  }

  #scheduleSubmit(): void {
    if (this.#submitScheduled) return;
    this.#submitScheduled = true;
    queueMicrotask(() => {
      this.#submitScheduled = false;
      this.#submit();
    });
  }

  /** Moves waiting requests into free slots and hands them to the kernel. */
  #submit(): void {
    while (this.#freeSlots.length > 0) {
      const request = this.#waiting.shift();
      if (request === undefined) break;
      const slot = this.#freeSlots.pop()!;
      this.#inFlight[slot] = request;
      const { op, file, offset, view } = request;
      this.#addon.asyncRingPush(this.#ring, slot, RING_OP[op], file.fd, offset, view);
      this.#pushed.push(slot);
    }
    if (this.#pushed.length === 0) return;
    const refused = this.#addon.asyncRingSubmit(this.#ring);
    const errno = this.#completions[0]!;
    const refusedSlots = refused === 0 ? [] : this.#pushed.slice(-refused);
    this.#pushed = [];
    for (const slot of refusedSlots) this.#finish(slot, errno);
    this.#afterCompletions();
  }

  #complete(count: number): void {
    for (let index = 0; index < count; index += 1) {
      this.#finish(this.#completions[2 * index]!, this.#completions[2 * index + 1]!);
    }
    this.#afterCompletions();
  }

  #afterCompletions(): void {
    if (this.#waiting.length > 0 && this.#freeSlots.length > 0) this.#scheduleSubmit();
    if (this.#freeSlots.length === this.depth) this.#whenIdle?.();
  }

  /** Settles the request in `slot`. `result`: bytes, or a negative errno. */
  #finish(slot: number, result: number): void {
    const request = this.#inFlight[slot];
    assert(request !== undefined, 'a completion belongs to a request', { slot });
    this.#inFlight[slot] = undefined;
    this.#freeSlots.push(slot);
    const { op, file, offset, view } = request;
    const failed = { op, path: file.path, offset, length: view.byteLength };
    if (result < 0) {
      request.reject(errnoFailure(failed, result));
    } else if (result !== view.byteLength) {
      request.reject(shortFailure(failed, result));
    } else {
      if (op === 'read') this.#bytesRead += result;
      if (op === 'write') this.#bytesWritten += result;
      request.resolve();
    }
  }
}
