/**
 * @file Blocking I/O of a worker thread over its own io_uring: requests queue, `wait` submits them
 * and blocks until the one asked for is complete.
 *
 * Owns the ring, not the descriptors. The ring holds each view while its request is in flight.
 * Belongs to the thread that created it.
 */
import { SpillwayError, assert } from '../../core/errors.js';
import { native, type NativeAddon, type SyncRingHandle } from '../native/binding.js';
import { FaultInjector, shortLength, type FaultPlan } from './fault-plan.js';
import type { SyncIo } from './io-backend.js';
import { RING_OP } from './ring-op.js';
import { SyncResults, pathOfFd, type SyncRequest } from './sync-request.js';

interface Pending {
  readonly ticket: number;
  readonly request: SyncRequest;
}

export class SyncRing implements SyncIo {
  readonly kind = 'ring';
  readonly depth: number;
  readonly #addon: NativeAddon;
  readonly #ring: SyncRingHandle;
  readonly #completions: Int32Array<SharedArrayBuffer>;
  /** By slot. */
  readonly #pending: (Pending | undefined)[];
  readonly #freeSlots: number[];
  readonly #results = new SyncResults();
  readonly #faults: FaultInjector | undefined;
  #queuedCount = 0;
  #nextTicket = 0;
  #disposed = false;

  /**
   * @param depth most requests in flight, 1 to 1024
   * @throws DEVICE_UNAVAILABLE when there is no addon or the kernel refuses a ring
   */
  constructor(depth: number, faults?: FaultPlan) {
    const addon = native();
    if (addon === undefined) {
      throw new SpillwayError('DEVICE_UNAVAILABLE', 'io_uring needs the native addon; build it');
    }
    this.depth = depth;
    this.#addon = addon;
    this.#completions = new Int32Array(new SharedArrayBuffer(8 * depth));
    try {
      this.#ring = addon.syncRingCreate(depth, this.#completions);
    } catch (error) {
      const message = error instanceof Error ? error.message : String(error);
      throw new SpillwayError('DEVICE_UNAVAILABLE', `no io_uring here: ${message}`, {}, error);
    }
    this.#pending = Array.from({ length: depth }, () => undefined);
    this.#freeSlots = Array.from({ length: depth }, (_, slot) => depth - 1 - slot);
    this.#faults = faults === undefined ? undefined : new FaultInjector(faults);
  }

  get bytesRead(): number {
    return this.#results.bytesRead;
  }

  get bytesWritten(): number {
    return this.#results.bytesWritten;
  }

  read(fd: number, offset: number, target: Uint8Array<SharedArrayBuffer>): number {
    return this.#start({ op: 'read', fd, offset, length: target.byteLength }, target);
  }

  write(fd: number, offset: number, source: Uint8Array<SharedArrayBuffer>): number {
    return this.#start({ op: 'write', fd, offset, length: source.byteLength }, source);
  }

  wait(ticket: number): void {
    assert(!this.#disposed, 'the ring is open');
    assert(ticket >= 0 && ticket < this.#nextTicket, 'the ticket is one of this ring', { ticket });
    // Also what was queued meanwhile must reach the disk: the caller now computes for a while.
    if (this.#queuedCount > 0) this.#collect(0);
    while (!this.#results.has(ticket)) this.#collect(1);
    this.#results.take(ticket);
  }

  dispose(): void {
    if (this.#disposed) return;
    this.#disposed = true;
    this.#addon.syncRingClose(this.#ring);
  }

  #start(request: SyncRequest, view: Uint8Array<SharedArrayBuffer>): number {
    assert(!this.#disposed, 'the ring is open');
    while (this.#freeSlots.length === 0) this.#collect(1);
    const ticket = this.#nextTicket++;
    const fault = this.#faults?.decide({ ...request, path: pathOfFd(request.fd) });
    if (fault === 'EIO' || fault === 'ENOSPC') {
      this.#results.add(ticket, request, fault);
      return ticket;
    }
    const slot = this.#freeSlots.pop()!;
    const part = fault === 'short' ? view.subarray(0, shortLength(view.byteLength)) : view;
    this.#addon.syncRingPush(
      this.#ring,
      slot,
      RING_OP[request.op],
      request.fd,
      request.offset,
      part,
    );
    this.#pending[slot] = { ticket, request };
    this.#queuedCount += 1;
    return ticket;
  }

  /** Submits what is queued and blocks for at least `minComplete` completions. */
  #collect(minComplete: number): void {
    assert(this.#freeSlots.length < this.depth, 'a request is in flight');
    this.#queuedCount = 0;
    const count = this.#addon.syncRingWait(this.#ring, minComplete);
    if (count < 0) {
      // The kernel took none of what was queued last; which, only the ring knows: give up.
      const facts = { errno: count, depth: this.depth };
      this.dispose();
      throw new SpillwayError('IO_ERROR', 'io_uring_enter failed; see errno', facts);
    }
    for (let index = 0; index < count; index += 1) {
      const slot = this.#completions[2 * index]!;
      const pending = this.#pending[slot];
      assert(pending !== undefined, 'a completion belongs to a request', { slot });
      this.#pending[slot] = undefined;
      this.#freeSlots.push(slot);
      this.#results.add(pending.ticket, pending.request, this.#completions[2 * index + 1]!);
    }
  }
}
