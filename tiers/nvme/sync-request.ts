/**
 * @file What the two blocking implementations share: alignment, tickets that were not waited for,
 * and errors that name the file behind a descriptor.
 */
import { readlinkSync } from 'node:fs';

import { SpillwayError, assert } from '../../core/errors.js';
import { errnoFailure, shortFailure } from './io-failure.js';

/** Most requests complete but not waited for; a caller beyond it forgets its tickets. */
const MAX_UNCOLLECTED = 65_536;

/** A request of a worker. */
export interface SyncRequest {
  readonly op: 'read' | 'write';
  readonly fd: number;
  readonly offset: number;
  readonly length: number;
}

/** Outcome of a request: bytes, or a negative errno, or an errno's name. */
export type SyncResult = number | string;

/** Results by ticket, until they are waited for. */
export class SyncResults {
  readonly #results = new Map<number, { request: SyncRequest; result: SyncResult }>();
  #bytesRead = 0;
  #bytesWritten = 0;

  /** Bytes of whole transfers. */
  get bytesRead(): number {
    return this.#bytesRead;
  }

  get bytesWritten(): number {
    return this.#bytesWritten;
  }

  has(ticket: number): boolean {
    return this.#results.has(ticket);
  }

  add(ticket: number, request: SyncRequest, result: SyncResult): void {
    assert(this.#results.size < MAX_UNCOLLECTED, 'every ticket is waited for');
    this.#results.set(ticket, { request, result });
    if (result !== request.length) return;
    if (request.op === 'read') this.#bytesRead += result;
    else this.#bytesWritten += result;
  }

  /** Takes the result of `ticket`. @throws IO_SHORT, IO_ERROR, NVME_FULL */
  take(ticket: number): void {
    const entry = this.#results.get(ticket);
    assert(entry !== undefined, 'a ticket is waited for once', { ticket });
    this.#results.delete(ticket);
    const { request, result } = entry;
    if (result !== request.length) throw syncFailure(request, result);
  }
}

/** The path behind `fd` where the system tells, for errors. */
export function pathOfFd(fd: number): string {
  try {
    return readlinkSync(`/proc/self/fd/${fd}`);
  } catch {
    return `descriptor ${fd}`; // No /proc here, or the descriptor is closed.
  }
}

function syncFailure(request: SyncRequest, result: SyncResult): SpillwayError {
  const failed = { ...request, path: pathOfFd(request.fd) };
  const { fd, ...named } = failed;
  if (typeof result === 'string' || result < 0) return errnoFailure(named, result);
  assert(fd >= 0, 'a transfer has a descriptor');
  return shortFailure(named, result);
}
