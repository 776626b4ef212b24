/**
 * @file The operating system's name of an error.
 */

/** `ENOENT` and the like; `unknown` for errors that are not the system's. */
export function errnoOf(error: unknown): string {
  return error instanceof Error && 'code' in error && typeof error.code === 'string'
    ? error.code
    : 'unknown';
}
