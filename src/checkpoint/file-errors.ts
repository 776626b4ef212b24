/**
 * @file From Node's file errors to Spillway's codes, and from corrupt bytes to one line.
 */
import { access } from 'node:fs/promises';

import { errnoOf } from '../../core/errno.js';
import { SpillwayError, isCoded, type ErrorFacts } from '../../core/errors.js';

/** Codes of the operating system that mean "this path cannot be written by you". */
const UNWRITABLE = new Set([
  'EACCES',
  'EPERM',
  'EROFS',
  'ENOENT',
  'ENOTDIR',
  'EISDIR',
  'EEXIST',
  'ENOTEMPTY',
  'ENAMETOOLONG',
  'ELOOP',
]);

/** Longest part of a name from a file that a message repeats. */
const QUOTED_LENGTH = 120;

/** Whether `path` leads to something. */
export async function exists(path: string): Promise<boolean> {
  return access(path).then(
    () => true,
    () => false,
  );
}

/** `name` in quotes, escaped and shortened: names come from files and may hold anything. */
export function quoteName(name: string): string {
  const shown = name.length > QUOTED_LENGTH ? `${name.slice(0, QUOTED_LENGTH)}…` : name;
  return JSON.stringify(shown);
}

/** CHECKPOINT_CORRUPT: `path` is no valid checkpoint because of `fact`. */
export function corrupt(
  path: string,
  fact: string,
  facts: ErrorFacts = {},
  cause?: unknown,
): SpillwayError {
  return new SpillwayError(
    'CHECKPOINT_CORRUPT',
    `${path}: ${fact}; fetch or write the file again`,
    facts,
    cause,
  );
}

/** What a failed write or rename at `path` means; coded errors pass through unchanged. */
export function writeError(path: string, error: unknown): Error {
  if (isCoded(error)) return error;
  const errno = errnoOf(error);
  if (errno === 'ENOSPC' || errno === 'EDQUOT' || errno === 'EFBIG') {
    return new SpillwayError(
      'OUTPUT_FULL',
      `no space left to write ${path}; free space and save again, what was saved before is intact`,
      { errno },
      error,
    );
  }
  if (UNWRITABLE.has(errno)) {
    return new SpillwayError(
      'PATH_UNWRITABLE',
      `cannot write ${path}; choose a folder that you may write to`,
      { errno },
      error,
    );
  }
  if (errno !== 'unknown') {
    return new SpillwayError(
      'IO_ERROR',
      `writing ${path} failed; check the disk`,
      { errno },
      error,
    );
  }
  return error instanceof Error ? error : new Error(String(error));
}

/** What a failed open or read at `path` means; coded errors pass through unchanged. */
export function readError(path: string, error: unknown): Error {
  if (isCoded(error)) return error;
  const errno = errnoOf(error);
  if (errno === 'ENOENT' || errno === 'ENOTDIR' || errno === 'EACCES' || errno === 'EISDIR') {
    return new SpillwayError(
      'MODEL_NOT_FOUND',
      `cannot open ${path}; check the path and its permissions`,
      { errno },
      error,
    );
  }
  return new SpillwayError(
    'IO_ERROR',
    `reading ${path} failed; check the disk`,
    { errno: errno === 'unknown' ? String(error) : errno },
    error,
  );
}
