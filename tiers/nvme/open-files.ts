/**
 * @file The data files that an I/O backend has open, until it is disposed of.
 */
import { assert } from '../../core/errors.js';
import { closeDataFile, openDataFile, type DataFile } from './data-file.js';
import type { IoFile } from './io-backend.js';
import { closedFailure } from './io-failure.js';

/** Owns the files. */
export class OpenFiles {
  readonly #files = new Map<IoFile, DataFile>();
  #isRefusing = false;

  /** @throws as `openDataFile`; ENGINE_CLOSED after `refuse`, also while it opens */
  async open(path: string): Promise<IoFile> {
    this.assertOpen();
    const file = await openDataFile(path);
    if (this.#isRefusing) {
      await closeDataFile(file);
      throw closedFailure();
    }
    this.#files.set(file, file);
    return file;
  }

  /** What is known of an open file. */
  of(file: IoFile): DataFile {
    const dataFile = this.#files.get(file);
    assert(dataFile !== undefined, 'the file is open in this backend', { path: file.path });
    return dataFile;
  }

  async close(file: IoFile): Promise<void> {
    const dataFile = this.of(file);
    this.#files.delete(file);
    await closeDataFile(dataFile);
  }

  /** From now on nothing is opened or asked for. */
  refuse(): void {
    this.#isRefusing = true;
  }

  /** @throws ENGINE_CLOSED after `refuse` */
  assertOpen(): void {
    if (this.#isRefusing) throw closedFailure();
  }

  async closeAll(): Promise<void> {
    const files = [...this.#files.values()];
    this.#files.clear();
    for (const file of files) await closeDataFile(file);
  }
}
