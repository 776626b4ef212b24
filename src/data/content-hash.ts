/**
 * @file Identity of a list of files by their contents: SHA-256 over the SHA-256 of each, in order.
 *
 * Names, times and places do not matter. Contents are hashed rather than sizes and times compared,
 * because a file that is rewritten within the clock's grain must not meet old tokens.
 */
import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import type { Hash } from 'node:crypto';
import type { DataFile } from './data-files.js';

/** Pieces read at once: SHA-256 runs at 1 to 2 GB/s, so that larger ones gain nothing. */
const READ_BYTES = 2 ** 20;

/** Hashes files as they are read. */
export class ContentHash {
  readonly #all: Hash = createHash('sha256');
  #file: Hash = createHash('sha256');

  /** The next bytes of the current file. */
  update(bytes: Uint8Array): void {
    this.#file.update(bytes);
  }

  /** The current file is whole. */
  endFile(): void {
    this.#all.update(this.#file.digest());
    this.#file = createHash('sha256');
  }

  /** Hex; nothing may follow. */
  digest(): string {
    return this.#all.digest('hex');
  }
}

/** The hash of `files`, or undefined when one cannot be read (reading it as data says why). */
export async function hashFiles(
  files: readonly DataFile[],
  signal: AbortSignal | undefined,
): Promise<string | undefined> {
  const hash = new ContentHash();
  try {
    for (const { path } of files) {
      for await (const bytes of createReadStream(path, {
        highWaterMark: READ_BYTES,
      }) as AsyncIterable<Buffer>) {
        signal?.throwIfAborted();
        hash.update(bytes);
      }
      hash.endFile();
    }
  } catch {
    signal?.throwIfAborted();
    return undefined;
  }
  return hash.digest();
}
