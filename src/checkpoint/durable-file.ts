/**
 * @file Files that appear whole or not at all: temporary name, flush, rename, flush of the folder.
 *
 * A crash at any instant leaves the earlier file or the new one. The temporary name is fixed
 * (`.tmp-<name>`), so that the next attempt clears what a killed process left behind.
 */
import { open, rename, rm, type FileHandle } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';

import { SpillwayError } from '../../core/errors.js';
import { writeError } from './file-errors.js';

/** The temporary sibling of `path`, hidden, on the same file system. */
export function temporaryPath(path: string): string {
  return join(dirname(path), `.tmp-${basename(path)}`);
}

/**
 * Writes the file at `path` through `write`, which gets an empty file open for writing.
 *
 * @throws OUTPUT_FULL, PATH_UNWRITABLE, IO_ERROR, or what `write` throws; then the half file is
 *   removed and an earlier file at `path` is untouched
 */
export async function writeDurableFile(
  path: string,
  write: (handle: FileHandle) => Promise<void>,
): Promise<void> {
  const temporary = temporaryPath(path);
  try {
    await rm(temporary, { force: true });
    const handle = await open(temporary, 'wx');
    try {
      await write(handle);
      await handle.sync();
    } finally {
      await handle.close();
    }
    await rename(temporary, path);
    await flushPath(dirname(path));
  } catch (error) {
    // The first error is the one to report; a leftover is cleared by the next attempt.
    await rm(temporary, { force: true }).catch(() => undefined);
    throw writeError(path, error);
  }
}

/** Writes `value` as indented JSON with a final newline, durably. @throws as `writeDurableFile` */
export async function writeDurableJson(path: string, value: unknown): Promise<void> {
  await writeDurableFile(path, (handle) =>
    handle.writeFile(`${JSON.stringify(value, undefined, 2)}\n`),
  );
}

/** Puts a file's data, or a folder's names, on stable storage. */
export async function flushPath(path: string): Promise<void> {
  const handle = await open(path, 'r');
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

/** Writes all of `bytes` at `position`; a short write goes on until the system reports why. */
export async function writeFully(
  handle: FileHandle,
  bytes: Uint8Array,
  position: number,
): Promise<void> {
  for (let done = 0; done < bytes.length;) {
    const { bytesWritten } = await handle.write(bytes, done, bytes.length - done, position + done);
    if (bytesWritten === 0) throw new SpillwayError('IO_ERROR', 'a write made no progress');
    done += bytesWritten;
  }
}
