/**
 * @file Blocking I/O of a worker thread by node:fs, where there is no io_uring. A request is
 * complete when `read` or `write` returns; its outcome waits for its ticket all the same.
 */
import { readSync, writeSync } from 'node:fs';

import { assert } from '../../core/errors.js';
import { FaultInjector, shortLength, type FaultPlan } from './fault-plan.js';
import type { SyncIo } from './io-backend.js';
import { SyncResults, pathOfFd, type SyncRequest, type SyncResult } from './sync-request.js';

export class SyncBlocking implements SyncIo {
  readonly kind = 'blocking';
  readonly depth: number;
  readonly #results = new SyncResults();
  readonly #faults: FaultInjector | undefined;
  #nextTicket = 0;
  #disposed = false;

  constructor(depth: number, faults?: FaultPlan) {
    this.depth = depth;
    this.#faults = faults === undefined ? undefined : new FaultInjector(faults);
  }

  get bytesRead(): number {
    return this.#results.bytesRead;
  }

  get bytesWritten(): number {
    return this.#results.bytesWritten;
  }

  read(fd: number, offset: number, target: Uint8Array<SharedArrayBuffer>): number {
    return this.#run({ op: 'read', fd, offset, length: target.byteLength }, target);
  }

  write(fd: number, offset: number, source: Uint8Array<SharedArrayBuffer>): number {
    return this.#run({ op: 'write', fd, offset, length: source.byteLength }, source);
  }

  wait(ticket: number): void {
    assert(!this.#disposed, 'the I/O is open');
    this.#results.take(ticket);
  }

  dispose(): void {
    this.#disposed = true;
  }

  #run(request: SyncRequest, view: Uint8Array<SharedArrayBuffer>): number {
    assert(!this.#disposed, 'the I/O is open');
    const ticket = this.#nextTicket++;
    const fault = this.#faults?.decide({ ...request, path: pathOfFd(request.fd) });
    const part = fault === 'short' ? view.subarray(0, shortLength(view.byteLength)) : view;
    const failed = fault === 'EIO' || fault === 'ENOSPC';
    this.#results.add(ticket, request, failed ? fault : transfer(request, part));
    return ticket;
  }
}

/** Moves the whole view unless the file ends; bytes moved, or an errno's name. */
function transfer(request: SyncRequest, view: Uint8Array): SyncResult {
  const { fd, op, offset } = request;
  let done = 0;
  try {
    while (done < view.byteLength) {
      const left = view.byteLength - done;
      const moved =
        op === 'read'
          ? readSync(fd, view, done, left, offset + done)
          : writeSync(fd, view, done, left, offset + done);
      if (moved === 0) break;
      done += moved;
    }
  } catch (error) {
    if (error instanceof Error && 'code' in error) return String(error.code);
    throw error;
  }
  return done;
}
