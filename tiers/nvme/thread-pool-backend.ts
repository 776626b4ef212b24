/**
 * @file Asynchronous I/O by node:fs, on libuv's thread pool: portable.
 *
 * Owns the files. A request holds its view.
 */
import { assertTransfer, reserveDataFile, type DataFile } from './data-file.js';
import type { IoBackend, IoFile } from './io-backend.js';
import { shortFailure, systemFailure, type FailedRequest } from './io-failure.js';
import { OpenFiles } from './open-files.js';

export class ThreadPoolBackend implements IoBackend {
  readonly kind = 'thread-pool';
  readonly #files = new OpenFiles();
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

  open(path: string): Promise<IoFile> {
    return this.#files.open(path);
  }

  async reserve(file: IoFile, byteLength: number): Promise<void> {
    await this.#track(reserveDataFile(this.#files.of(file), byteLength));
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
    const { handle, path } = this.#files.of(file);
    const request = { op: 'flush', path, offset: 0, length: 0 } as const;
    await this.#track(
      handle.datasync().catch((error: unknown) => {
        throw systemFailure(request, error);
      }),
    );
  }

  close(file: IoFile): Promise<void> {
    return this.#files.close(file);
  }

  /** Refuses new requests, lets running ones end, closes the files. */
  dispose(): Promise<void> {
    this.#disposal ??= this.#dispose();
    return this.#disposal;
  }

  async #dispose(): Promise<void> {
    this.#files.refuse();
    await Promise.allSettled(this.#running);
    await this.#files.closeAll();
  }

  /** Moves all of `view`, in as many calls as the system makes of it. */
  async #transfer(
    op: 'read' | 'write',
    ioFile: IoFile,
    offset: number,
    view: Uint8Array<SharedArrayBuffer>,
  ): Promise<void> {
    this.#files.assertOpen();
    const file = this.#files.of(ioFile);
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
