/**
 * @file The operating system's name of an error.
 */
import { constants } from 'node:os';
import { getSystemErrorName } from 'node:util';

const NUMBERS: ReadonlySet<number> = new Set(Object.values(constants.errno));

/** `ENOENT` and the like; `unknown` for errors that are not the system's. */
export function errnoOf(error: unknown): string {
  if (!(error instanceof Error && 'code' in error)) return 'unknown';
  const { code } = error;
  if (typeof code === 'string') return code;
  // LMDB's errors have the system's number.
  return typeof code === 'number' && NUMBERS.has(code) ? getSystemErrorName(-code) : 'unknown';
}
