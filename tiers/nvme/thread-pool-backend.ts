/**
 * @file Asynchronous I/O by node:fs, on libuv's thread pool: portable.
 *
 * Owns the files. A request holds its view.
 */
import { assert } from '../../core/errors.js';
import {
  assertTransfer,
  closeDataFile,
  openDataFile,
  reserveDataFile,
  type DataFile,
} from './data-file.js';
import type { IoBackend, IoFile } from './io-backend.js';
import { closedFailure, shortFailure, systemFailure, type FailedRequest } from './io-failure.js';

export class ThreadPoolBackend implements IoBackend {
  readonly kind = 'thread-pool';
  readonly #files = new Map<IoFile, DataFile>();
  readonly #running = new Set<Promise<void>>();
  #bytesRead = 0;
  #bytesWritten = 0;
  #disposal: Promise<void> | undefined;

  get bytesRead(): number {
    return this.#bytesRead;
  }

  get bytesWritten(): number {
    return this.#bytesWritten;
  }

  async open(path: string): Promise<IoFile> {
    this.#assertOpen();
    const file = await openDataFile(path);
    if (this.#disposal !== undefined) {
      await closeDataFile(file);
      throw closedFailure();
    }
    this.#files.set(file, file);
    return file;
  }

  async reserve(file: IoFile, byteLength: number): Promise<void> {
    await this.#track(reserveDataFile(this.#dataFile(file), byteLength));
  }

  async read(file: IoFile, offset: number, target: Uint8Array<SharedArrayBuffer>): Promise<void> {
    await this.#track(this.#transfer('read', file, offset, target));
    this.#bytesRead += target.byteLength;
  }

  async write(file: IoFile, offset: number, source: Uint8Array<SharedArrayBuffer>): Promise<void> {
    await this.#track(this.#transfer('write', file, offset, source));
    this.#bytesWritten += source.byteLength;
  }

  async flush(file: IoFile): Promise<void> {
    const { handle, path } = this.#dataFile(file);
    const request = { op: 'flush', path, offset: 0, length: 0 } as const;
    await this.#track(
      handle.datasync().catch((error: unknown) => {
        throw systemFailure(request, error);
      }),
    );
  }

  async close(file: IoFile): Promise<void> {
    const dataFile = this.#dataFile(file);
    this.#files.delete(file);
    await closeDataFile(dataFile);
  }

  /** Refuses new requests, lets running ones end, closes the files. */
  dispose(): Promise<void> {
    this.#disposal ??= this.#dispose();
    return this.#disposal;
  }

  async #dispose(): Promise<void> {
    await Promise.allSettled(this.#running);
    const files = [...this.#files.values()];
    this.#files.clear();
    for (const file of files) await closeDataFile(file);
  }

  /** Moves all of `view`, in as many calls as the system makes of it. */
  async #transfer(
    op: 'read' | 'write',
    ioFile: IoFile,
    offset: number,
    view: Uint8Array<SharedArrayBuffer>,
  ): Promise<void> {
    this.#assertOpen();
    const file = this.#dataFile(ioFile);
    assertTransfer(file, offset, view);
    const request: FailedRequest = { op, path: file.path, offset, length: view.byteLength };
    let done = 0;
    while (done < view.byteLength) {
      const moved = await transferOnce(request, file, view, done);
      if (moved === 0) throw shortFailure(request, done);
      done += moved;
    }
  }

  /** Remembers the request until it ends, so that `dispose` can wait for it. */
  async #track(request: Promise<void>): Promise<void> {
    this.#running.add(request);
    try {
      await request;
    } finally {
      this.#running.delete(request);
    }
  }

  #assertOpen(): void {
    if (this.#disposal !== undefined) throw closedFailure();
  }

  #dataFile(file: IoFile): DataFile {
    const dataFile = this.#files.get(file);
    assert(dataFile !== undefined, 'the file is open in this backend', { path: file.path });
    return dataFile;
  }
}

async function transferOnce(
  request: FailedRequest,
  { handle }: DataFile,
  view: Uint8Array<SharedArrayBuffer>,
  done: number,
): Promise<number> {
  const left = view.byteLength - done;
  const position = request.offset + done;
  try {
    if (request.op === 'read') return (await handle.read(view, done, left, position)).bytesRead;
    return (await handle.write(view, done, left, position)).bytesWritten;
  } catch (error) {
    throw systemFailure(request, error);
  }
}
