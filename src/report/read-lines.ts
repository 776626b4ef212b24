/**
 * @file Lines of the files that a run leaves, and what is wrong with these.
 */
import { errnoOf } from '../../core/errno.js';
import { isCoded, SpillwayError } from '../../core/errors.js';
import { readJsonl, type JsonlLine } from '../data/read-jsonl.js';

/** Bytes of one line; ours have some hundred. */
const MAX_LINE_BYTES = 2 ** 20;

/** Lines that are not blank, one after the other. @throws RUN_CORRUPT, IO_ERROR */
export async function* readLines(path: string): AsyncGenerator<JsonlLine, void, undefined> {
  try {
    yield* readJsonl(path, { maxLineBytes: MAX_LINE_BYTES });
  } catch (error) {
    throw readError(path, error);
  }
}

/** `place` holds what no run writes. */
export function corrupt(place: string, fact: string, cause?: unknown): SpillwayError {
  return new SpillwayError(
    'RUN_CORRUPT',
    `${place} ${fact}; it is not what a run writes`,
    {},
    cause,
  );
}

/** What a failed read of a run's file means. */
export function readError(path: string, error: unknown): unknown {
  // The reader of lines speaks of rows of data.
  if (isCoded(error) && error.code === 'DATA_INVALID') {
    return corrupt(path, 'has a line that is too long or not UTF-8', error);
  }
  const cause = isCoded(error) && error.code === 'DATA_NOT_FOUND' ? error.cause : error;
  const errno = errnoOf(cause);
  if (isCoded(cause) || errno === '') return cause;
  if (errno === 'EISDIR') return corrupt(path, 'is a folder', cause);
  return new SpillwayError('IO_ERROR', `reading ${path} failed; check it`, { errno }, cause);
}
