/**
 * @file Exclusive lock of a data file: `flock` on the very descriptor that does the I/O, or, where
 * the addon is absent, a lock file beside it.
 *
 * After a SIGKILL the kernel may go on writing what was in flight; `flock` stays held until that
 * is done, so whoever gets the lock finds a quiet file. A lock file cannot promise that: its
 * holder's death is noticed by process id, and its writes are synchronous only to the page cache.
 */
import { renameSync, rmSync, writeFileSync } from 'node:fs';
import { randomUUID } from 'node:crypto';

import { SpillwayError } from '../../core/errors.js';
import { textOfFile } from '../../core/text-of-file.js';
import { native } from '../native/binding.js';
import { errnoName } from './io-failure.js';

/** Errnos of `flock` on a file that another descriptor holds, and on disks that cannot lock. */
const HELD_ERRNOS: ReadonlySet<string> = new Set(['EAGAIN', 'EWOULDBLOCK']);

/** A lock held until `release()`; for `flock`, closing the descriptor is the release. */
export interface FileLock {
  /** Idempotent. */
  release(): void;
}

/**
 * Locks the open file.
 *
 * @throws STORE_LOCKED when another open of the file, here or in another process, holds it;
 *   IO_ERROR when the disk cannot lock
 */
export function lockFile(path: string, fd: number): FileLock {
  const addon = native();
  if (addon === undefined) return lockByFile(path);
  const status = addon.fileLock(fd);
  if (status === 0) return { release: () => undefined };
  const errno = errnoName(status);
  if (HELD_ERRNOS.has(errno)) throw lockedFailure(path, {});
  throw new SpillwayError('IO_ERROR', `cannot lock the file (${errno}); use another nvme_path`, {
    path,
    errno,
  });
}

/** The portable lock: `<path>.lock` with the holder's process id and a token. */
export function lockByFile(path: string): FileLock {
  const lockPath = `${path}.lock`;
  const content = `${process.pid} ${randomUUID()}\n`;
  if (!createExclusively(lockPath, content)) {
    breakStaleLock(path, lockPath);
    if (!createExclusively(lockPath, content)) throw lockedFailure(path, { lockPath });
  }
  return {
    release: () => {
      if (textOfFile(lockPath) === content) rmSync(lockPath, { force: true });
    },
  };
}

/** Removes the lock file of a dead process. @throws STORE_LOCKED when its holder lives */
function breakStaleLock(path: string, lockPath: string): void {
  const found = textOfFile(lockPath);
  if (found === undefined) return; // Released between two looks.
  const pid = Number.parseInt(found, 10);
  if (!Number.isInteger(pid) || isAlive(pid)) throw lockedFailure(path, { lockPath, pid: found });
  // Two processes may find the same stale lock: only the one that can rename it away goes on, and
  // it puts back what it took if that was a new lock by now.
  const aside = `${lockPath}.${randomUUID()}`;
  try {
    renameSync(lockPath, aside);
  } catch {
    return; // Gone meanwhile; the exclusive creation decides.
  }
  const taken = textOfFile(aside);
  if (taken !== found) {
    if (taken !== undefined) createExclusively(lockPath, taken);
    rmSync(aside, { force: true });
    throw lockedFailure(path, { lockPath });
  }
  rmSync(aside, { force: true });
}

function createExclusively(path: string, content: string): boolean {
  try {
    writeFileSync(path, content, { flag: 'wx' });
    return true;
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'EEXIST') return false;
    const message = 'cannot create the lock file; use another nvme_path';
    throw new SpillwayError('PATH_UNWRITABLE', message, { path }, error);
  }
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return !(error instanceof Error && 'code' in error && error.code === 'ESRCH');
  }
}

function lockedFailure(path: string, facts: Readonly<Record<string, string>>): SpillwayError {
  const message = 'another run uses this store; wait for it, or give another output_dir';
  return new SpillwayError('STORE_LOCKED', message, { path, ...facts });
}
