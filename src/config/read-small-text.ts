/**
 * @file Reads a configuration file as text, with a bound on its size.
 */
import { open } from 'node:fs/promises';
import { errnoOf } from '../../core/errno.js';
import { SpillwayError } from '../../core/errors.js';

/** A configuration has a few dozen lines; more is another file passed by mistake. */
const MAX_FILE_BYTES = 1 << 20;

/**
 * The text in the file at `path`.
 *
 * @param what names the kind of file in messages
 * @throws CONFIG_NOT_FOUND when it cannot be read; CONFIG_INVALID when it is too large
 */
export async function readSmallText(path: string, what: string): Promise<string> {
  try {
    const file = await open(path, 'r');
    try {
      const stat = await file.stat();
      if (stat.isFile() && stat.size > MAX_FILE_BYTES) throw tooLarge(path, stat.size);
      // The size of a pipe is not known before: read one byte more than allowed, never all of it.
      const bytes = Buffer.alloc(MAX_FILE_BYTES + 1);
      let filled = 0;
      while (filled < bytes.length) {
        const { bytesRead } = await file.read(bytes, filled, bytes.length - filled);
        if (bytesRead === 0) break;
        filled += bytesRead;
      }
      if (filled > MAX_FILE_BYTES) throw tooLarge(path, filled);
      return bytes.toString('utf8', 0, filled);
    } finally {
      await file.close();
    }
  } catch (error) {
    if (error instanceof SpillwayError) throw error;
    const code = errnoOf(error);
    throw new SpillwayError(
      'CONFIG_NOT_FOUND',
      `cannot read ${what} "${path}"; check the path`,
      { path, errno: code },
      error,
    );
  }
}

function tooLarge(path: string, size: number): SpillwayError {
  return new SpillwayError(
    'CONFIG_INVALID',
    `"${path}" has ${size} bytes or more, more than a configuration can have (${MAX_FILE_BYTES})`,
    { path },
  );
}
