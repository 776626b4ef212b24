/**
 * A `SyncIo` that makes each transfer at a seeded moment between its start and its `wait`, in any
 * order. Whoever touches a buffer while its request is in flight gets wrong bits with it.
 */
import { readSync, writeSync } from 'node:fs';

import { SpillwayError } from '../../core/errors.js';
import type { SyncIo } from '../../tiers/nvme/io-backend.js';

interface Request {
  readonly op: 'read' | 'write';
  readonly fd: number;
  readonly offset: number;
  readonly bytes: Uint8Array<SharedArrayBuffer>;
  readonly fails: boolean;
  done: boolean;
}

export class LazyIo implements SyncIo {
  readonly kind = 'blocking';
  readonly depth = Infinity;
  bytesRead = 0;
  bytesWritten = 0;
  /** Requests that were not waited for. */
  peakInFlight = 0;
  readonly #fd: number;
  readonly #failingTicket: number;
  readonly #requests = new Map<number, Request>();
  #nextTicket = 1;
  #word: number;

  /** @param failingTicket the request, one-based, that fails with IO_ERROR and moves nothing */
  constructor(fd: number, seed: number, failingTicket = 0) {
    this.#fd = fd;
    this.#word = seed >>> 0;
    this.#failingTicket = failingTicket;
  }

  get inFlight(): number {
    return this.#requests.size;
  }

  read(fd: number, offset: number, target: Uint8Array<SharedArrayBuffer>): number {
    return this.#start('read', fd, offset, target);
  }

  write(fd: number, offset: number, source: Uint8Array<SharedArrayBuffer>): number {
    return this.#start('write', fd, offset, source);
  }

  wait(ticket: number): void {
    const request = this.#requests.get(ticket);
    if (request === undefined) throw new Error(`ticket ${ticket} is unknown or was waited for`);
    this.#transfer(request);
    this.#requests.delete(ticket);
    if (request.fails) throw new SpillwayError('IO_ERROR', 'injected', { errno: 'EIO' });
  }

  dispose(): void {
    if (this.inFlight > 0) throw new Error('disposed with requests in flight');
  }

  #start(
    op: Request['op'],
    fd: number,
    offset: number,
    bytes: Uint8Array<SharedArrayBuffer>,
  ): number {
    if (fd !== this.#fd) throw new Error(`descriptor ${fd} is not the test's`);
    const ticket = this.#nextTicket++;
    const fails = ticket === this.#failingTicket;
    this.#requests.set(ticket, { op, fd, offset, bytes, fails, done: false });
    this.peakInFlight = Math.max(this.peakInFlight, this.inFlight);
    for (const request of this.#requests.values()) {
      this.#word = (Math.imul(this.#word, 1664525) + 1013904223) >>> 0;
      if (this.#word > 2 ** 31) this.#transfer(request);
    }
    return ticket;
  }

  #transfer(request: Request): void {
    if (request.done) return;
    request.done = true;
    const { op, fd, offset, bytes } = request;
    if (request.fails) return;
    const moved =
      op === 'read'
        ? readSync(fd, bytes, 0, bytes.byteLength, offset)
        : writeSync(fd, bytes, 0, bytes.byteLength, offset);
    if (moved !== bytes.byteLength) throw new Error(`${op} moved ${moved} bytes`);
    if (op === 'read') this.bytesRead += moved;
    else this.bytesWritten += moved;
  }
}
