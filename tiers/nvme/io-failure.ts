/**
 * @file Turns the outcome of one I/O request into the typed error that all backends reject with.
 */
import { statfsSync } from 'node:fs';
import { constants } from 'node:os';
import { getSystemErrorName } from 'node:util';

import { errnoOf } from '../../core/errno.js';
import { SpillwayError, type ErrorFacts } from '../../core/errors.js';

/** The request that failed. */
export interface FailedRequest {
  readonly op: 'open' | 'read' | 'write' | 'flush' | 'reserve';
  readonly path: string;
  /** Bytes from the file's start; 0 for flush and reserve. */
  readonly offset: number;
  /** Bytes asked for; 0 for flush. */
  readonly length: number;
}

/** Disk space, quota or the largest file size is exhausted. */
const FULL_ERRNOS: ReadonlySet<string> = new Set(['ENOSPC', 'EDQUOT', 'EFBIG']);

/**
 * The error for a request that ended with an errno.
 *
 * @param errno a number (either sign) or a name such as `EIO`
 * @returns NVME_FULL for ENOSPC, EDQUOT and EFBIG, else IO_ERROR
 */
export function errnoFailure(
  request: FailedRequest,
  errno: number | string,
  cause?: unknown,
): SpillwayError {
  const name = typeof errno === 'string' ? errno : errnoName(errno);
  if (FULL_ERRNOS.has(name)) return fullFailure(request, name, cause);
  const message = `${request.op} failed with ${name}; check the disk under nvme_path`;
  return new SpillwayError('IO_ERROR', message, { ...requestFacts(request), errno: name }, cause);
}

/**
 * The error for a request that moved only `transferred` bytes.
 *
 * @returns NVME_FULL for a write onto a disk without room for the rest, else IO_SHORT
 */
export function shortFailure(request: FailedRequest, transferred: number): SpillwayError {
  const missing = request.length - transferred;
  const free = freeBytes(request.path);
  if (request.op === 'write' && free !== undefined && free < missing) {
    return fullFailure(request, 'ENOSPC');
  }
  const message =
    request.op === 'read'
      ? 'read ended early; the file is shorter than the store needs, so start afresh'
      : 'write ended early; check the disk under nvme_path';
  const facts = { ...requestFacts(request), transferredBytes: transferred };
  return new SpillwayError('IO_SHORT', message, facts);
}

/** The error for an exception of node:fs. */
export function systemFailure(request: FailedRequest, error: unknown): SpillwayError {
  return errnoFailure(request, errnoOf(error), error);
}

/** The error for a request to a backend that is disposed. */
export function closedFailure(): SpillwayError {
  return new SpillwayError('ENGINE_CLOSED', 'the NVMe tier is closed; create a new engine');
}

/** Bytes that an unprivileged process can still allocate beside `path`; undefined if unknown. */
export function freeBytes(path: string): number | undefined {
  try {
    const { bavail, bsize } = statfsSync(path);
    return bavail * bsize;
  } catch {
    return undefined; // Only the wording of another error depends on it.
  }
}

/** Name of an errno, whatever its sign. */
export function errnoName(errno: number): string {
  const known = Object.values(constants.errno).includes(Math.abs(errno));
  return known ? getSystemErrorName(-Math.abs(errno)) : `errno ${Math.abs(errno)}`;
}

function fullFailure(request: FailedRequest, errno: string, cause?: unknown): SpillwayError {
  const facts: ErrorFacts = {
    ...requestFacts(request),
    errno,
    neededBytes: request.length,
    freeBytes: freeBytes(request.path) ?? 'unknown',
  };
  const message = 'the disk under nvme_path is full; free space or give another nvme_path';
  return new SpillwayError('NVME_FULL', message, facts, cause);
}

function requestFacts({ op, path, offset, length }: FailedRequest): ErrorFacts {
  return { op, path, offset, length };
}
