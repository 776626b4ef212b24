/**
 * @file One safetensors file, read by ranges of elements: no tensor is ever held whole.
 *
 * The header is checked when the file is opened; the descriptor for the data is opened at the
 * first read, so that a model of many shards holds few. Reads are positional and may run at the
 * same time. Owns that descriptor until `close()`; does not own the targets.
 */
import type { Stats } from 'node:fs';
import { open, type FileHandle } from 'node:fs/promises';

import { SpillwayError, assert } from '../../core/errors.js';
import { kernels } from '../../tiers/native/binding.js';
import { corrupt, quoteName, readError } from './file-errors.js';
import {
  LENGTH_BYTES,
  dtypeBits,
  elementCount,
  parseHeader,
  parseHeaderLength,
  type SafetensorsHeader,
  type TensorEntry,
} from './safetensors-header.js';

/** Elements widened at a time: a bounce buffer of 1 MiB of 16-bit elements. */
const BOUNCE_ELEMENTS = 524_288;

/** Bounce buffers kept for the next read; more exist only while more reads run at once. */
const KEPT_BOUNCE_BUFFERS = 2;

/** Bytes per read call straight into a target; Node refuses 2^31 and more. */
const MAX_READ_BYTES = 2 ** 28;

const bounceBuffers: Uint16Array<ArrayBuffer>[] = [];

/** A checked safetensors file. */
export class SafetensorsFile {
  readonly path: string;
  readonly entries: readonly TensorEntry[];
  readonly metadata: SafetensorsHeader['metadata'];
  readonly #stat: Stats;
  readonly #byName: ReadonlyMap<string, TensorEntry>;
  #handle: Promise<FileHandle> | undefined;
  #closed = false;

  private constructor(path: string, header: SafetensorsHeader, stat: Stats) {
    this.path = path;
    this.entries = header.entries;
    this.metadata = header.metadata;
    this.#stat = stat;
    this.#byName = new Map(header.entries.map((entry) => [entry.name, entry]));
  }

  /**
   * Reads and checks the header of the file at `path`; no descriptor stays open.
   *
   * @throws MODEL_NOT_FOUND, IO_ERROR, or CHECKPOINT_CORRUPT with the fact
   */
  static async open(path: string): Promise<SafetensorsFile> {
    const handle = await open(path).catch((error: unknown) => {
      throw readError(path, error);
    });
    try {
      const stat = await handle.stat();
      if (!stat.isFile()) throw corrupt(path, 'this is not a regular file');
      const fileBytes = stat.size;
      const first = new Uint8Array(Math.min(LENGTH_BYTES, fileBytes));
      await readFully(handle, path, first, 0);
      const json = new Uint8Array(parseHeaderLength(first, fileBytes, path));
      await readFully(handle, path, json, LENGTH_BYTES);
      return new SafetensorsFile(path, parseHeader(json, fileBytes, path), stat);
    } catch (error) {
      throw readError(path, error);
    } finally {
      await handle.close();
    }
  }

  /** The tensor called `name`, if the file holds it. */
  entry(name: string): TensorEntry | undefined {
    return this.#byName.get(name);
  }

  /**
   * Fills `target` with elements `offset … offset + target.length` of a F32, F16 or BF16 tensor,
   * widened exactly to float32.
   *
   * @throws CHECKPOINT_MISMATCH for another dtype, IO_ERROR, or CHECKPOINT_CORRUPT when the file
   *   has changed since `open`; the content of `target` is undefined then
   */
  async readElements(entry: TensorEntry, offset: number, target: Float32Array): Promise<void> {
    checkRange(entry, offset, target.length);
    const handle = await this.#data();
    switch (entry.dtype) {
      case 'F32':
        await readFully(handle, this.path, bytesOf(target), entry.begin + offset * 4);
        return;
      case 'F16':
      case 'BF16':
        await this.#widen(handle, entry, offset, target);
        return;
      default:
        throw new SpillwayError(
          'CHECKPOINT_MISMATCH',
          `tensor ${quoteName(entry.name)} of ${this.path} is ${entry.dtype}; weights are read from F32, F16 or BF16`,
        );
    }
  }

  /**
   * Fills `target` with the bits of elements `offset … offset + target.length` of a tensor of
   * 16-bit elements (BF16, F16, U16, I16), unchanged.
   *
   * @throws CHECKPOINT_MISMATCH for another dtype, IO_ERROR, CHECKPOINT_CORRUPT
   */
  async readBits(entry: TensorEntry, offset: number, target: Uint16Array): Promise<void> {
    checkRange(entry, offset, target.length);
    if (dtypeBits(entry.dtype) !== 16) {
      throw new SpillwayError(
        'CHECKPOINT_MISMATCH',
        `tensor ${quoteName(entry.name)} of ${this.path} is ${entry.dtype}; a 16-bit dtype is expected`,
      );
    }
    await readFully(await this.#data(), this.path, bytesOf(target), entry.begin + offset * 2);
  }

  /** Closes the descriptor after the reads in flight. Idempotent. */
  async close(): Promise<void> {
    this.#closed = true;
    const handle = this.#handle;
    this.#handle = undefined;
    // A failed open was reported to the reads that waited for it, and left nothing to close.
    await handle?.then(
      (opened) => opened.close(),
      () => undefined,
    );
  }

  async #widen(
    handle: FileHandle,
    entry: TensorEntry,
    offset: number,
    target: Float32Array,
  ): Promise<void> {
    const bounce = bounceBuffers.pop() ?? new Uint16Array(BOUNCE_ELEMENTS);
    try {
      for (let done = 0; done < target.length; done += BOUNCE_ELEMENTS) {
        const piece = target.subarray(done, done + BOUNCE_ELEMENTS);
        const bits = bounce.subarray(0, piece.length);
        const position = entry.begin + (offset + done) * 2;
        await readFully(handle, this.path, bytesOf(bits), position);
        if (entry.dtype === 'BF16') kernels().bf16ToF32(bits, piece);
        else kernels().f16ToF32(bits, piece);
      }
    } finally {
      if (bounceBuffers.length < KEPT_BOUNCE_BUFFERS) bounceBuffers.push(bounce);
    }
  }

  #data(): Promise<FileHandle> {
    assert(!this.#closed, 'a safetensors file is read after close', { path: this.path });
    this.#handle ??= this.#openData().catch((error: unknown) => {
      this.#handle = undefined;
      throw readError(this.path, error);
    });
    return this.#handle;
  }

  async #openData(): Promise<FileHandle> {
    const handle = await open(this.path);
    const stat = await handle.stat().catch(() => undefined);
    const { size, ino, mtimeMs } = this.#stat;
    if (stat?.size === size && stat.ino === ino && stat.mtimeMs === mtimeMs) return handle;
    await handle.close();
    throw corrupt(this.path, 'the file has changed since it was opened');
  }
}

function checkRange(entry: TensorEntry, offset: number, length: number): void {
  const count = elementCount(entry.shape);
  assert(
    Number.isSafeInteger(offset) && offset >= 0 && offset + length <= count,
    'elements outside of the tensor are read',
    { name: entry.name, offset, length, elementCount: count },
  );
}

/** The bytes of `view`, shared. */
function bytesOf(view: Float32Array | Uint16Array): Uint8Array {
  return new Uint8Array(view.buffer, view.byteOffset, view.byteLength);
}

async function readFully(
  handle: FileHandle,
  path: string,
  target: Uint8Array,
  position: number,
): Promise<void> {
  for (let done = 0; done < target.length;) {
    const length = Math.min(target.length - done, MAX_READ_BYTES);
    const { bytesRead } = await handle
      .read(target, done, length, position + done)
      .catch((error: unknown) => {
        throw readError(path, error);
      });
    if (bytesRead === 0) {
      throw corrupt(path, 'the file ended while it was read', { position: position + done });
    }
    done += bytesRead;
  }
}
