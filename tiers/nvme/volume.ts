/**
 * @file The NVMe tier: one data file per path, laid out ahead, read and written by whole chunks.
 *
 * Files are `<path>/<run id>/shards-<i>.bin`: created, reserved at full size and locked when the
 * volume is created, exactly as long as the layout says. Every chunk carries a CRC-32C in a table
 * that worker threads share; a chunk that this process has not written is never read. The first
 * write of a chunk costs more than later ones (the disk converts reserved space), so the engine's
 * initial load writes every region once.
 *
 * Owns files, lock, checksum tables and the backend given to it. Does not own the directory
 * (directory.ts), nor buffers: callers pass page-aligned ones.
 */
import { mkdir, readdir, rm, rmdir } from 'node:fs/promises';
import { join, resolve } from 'node:path';

import { formatBytes } from '../../core/bytes.js';
import { SpillwayError, assert } from '../../core/errors.js';
import { settleAll } from '../../core/settle-all.js';
import type { ShardId, StateName } from '../../core/types.js';
import { createSlab } from '../host/slab.js';
import { kernels } from '../native/binding.js';
import type { NvmeLocation } from '../state-location.js';
import { chunkOffset, chunkPayloadBytes, chunkTransferBytes } from './chunk.js';
import { fileExists, openFailure } from './data-file.js';
import type { IoBackend, IoFile } from './io-backend.js';
import { stateKey, type Layout, type Region, type StateRegion } from './layout.js';
import { encodeSlotHeader } from './slot-header.js';

/** Headers written at a time; each has its own buffer. */
const HEADER_WRITES = 8;

/** What a volume is made of. */
export interface NvmeVolumeOptions {
  /** Folders, one data file in each; as many as the layout has files. */
  readonly paths: readonly string[];
  /** Name of the run's folder below each path. */
  readonly runId: string;
  /** Owned by the volume from here on, also when `create` fails. */
  readonly backend: IoBackend;
  /** Most bytes of all files together. */
  readonly budgetBytes: number;
  readonly layout: Layout;
}

/** A payload's location, and which of its chunks were written by this process. */
interface Payload {
  readonly location: NvmeLocation;
  readonly written: Uint8Array;
}

interface OpenFile {
  readonly file: IoFile;
  readonly folder: string;
  /** Whether this process made the file: then a failed creation removes it. */
  readonly created: boolean;
}

export class NvmeVolume {
  readonly layout: Layout;
  readonly budgetBytes: number;
  /** Absolute path of each data file. */
  readonly filePaths: readonly string[];
  readonly #backend: IoBackend;
  readonly #files: readonly OpenFile[];
  readonly #states = new Map<string, Payload>();
  readonly #scratch = new Map<string, Payload>();
  /** By checksum table, which all copies of a location share. */
  readonly #written = new WeakMap<Uint32Array, Uint8Array>();
  #liveBytes: number;
  #disposal: Promise<void> | undefined;

  private constructor(options: NvmeVolumeOptions, files: readonly OpenFile[]) {
    this.layout = options.layout;
    this.budgetBytes = options.budgetBytes;
    this.#backend = options.backend;
    this.#files = files;
    this.filePaths = files.map(({ file }) => file.path);
    this.#liveBytes = options.layout.totalBytes;
    for (const region of this.layout.states) {
      const offset = region.slots[0]!.payloadOffset;
      this.#states.set(stateKey(region.shard, region.state), this.#payload(region, offset));
    }
    for (const region of this.layout.scratch) {
      this.#scratch.set(region.name, this.#payload(region, region.payloadOffset));
    }
  }

  /**
   * Creates folders and files, reserves their space, locks them and writes unsealed headers.
   *
   * @throws BUDGET_TOO_SMALL, PATH_UNWRITABLE, STORE_LOCKED, NVME_FULL, IO_ERROR, IO_SHORT; what
   *   was created is removed then, what was there before stays, and the backend is disposed
   */
  static async create(options: NvmeVolumeOptions): Promise<NvmeVolume> {
    const { layout, paths, backend, budgetBytes } = options;
    assert(paths.length === layout.fileBytes.length, 'one path per file of the layout');
    const opened: OpenFile[] = [];
    try {
      if (layout.totalBytes > budgetBytes) throw budgetFailure(layout.totalBytes, budgetBytes);
      for (const [index, path] of paths.entries()) {
        const opening = await openIn(resolve(path, options.runId), index, backend);
        opened.push(opening);
        await backend.reserve(opening.file, layout.fileBytes[index]!);
      }
      const volume = new NvmeVolume(options, opened);
      await volume.#writeHeaders(undefined);
      return volume;
    } catch (error) {
      await backend.dispose();
      for (const { file, folder, created } of opened) {
        if (created) await removeFile(file.path, folder);
      }
      throw error;
    }
  }

  /** Bytes of all regions with headers and padding; 0 after `dispose`. */
  get liveBytes(): number {
    return this.#liveBytes;
  }

  /** Highest `liveBytes` so far. */
  get peakBytes(): number {
    return this.layout.totalBytes;
  }

  /** Bytes that this thread read; workers count their own. */
  get bytesRead(): number {
    return this.#backend.bytesRead;
  }

  /** Bytes that this thread wrote, headers included. */
  get bytesWritten(): number {
    return this.#backend.bytesWritten;
  }

  /** Where a state of a shard lives. The layout must hold it. */
  location(shard: ShardId, state: StateName): NvmeLocation {
    const payload = this.#states.get(stateKey(shard, state));
    assert(payload !== undefined, 'the layout holds the state', { shard, state });
    return payload.location;
  }

  /** Where the scratch region `name` lives. The layout must hold it. */
  scratch(name: string): NvmeLocation {
    const payload = this.#scratch.get(name);
    assert(payload !== undefined, 'the layout holds the region', { name });
    return payload.location;
  }

  /**
   * Reads chunk `index` and compares it with its checksum.
   *
   * @param target exactly `chunkTransferBytes(location, index)` bytes, page-aligned
   * @throws STATE_CORRUPT with path, offset, expected, actual; IO_SHORT, IO_ERROR. `target` is
   *   undefined then
   */
  async readChunk(
    location: NvmeLocation,
    index: number,
    target: Uint8Array<SharedArrayBuffer>,
  ): Promise<void> {
    this.#assertChunk(location, index, target);
    assert(this.#writtenOf(location)[index] === 1, 'a chunk is read after it was written', {
      fileIndex: location.fileIndex,
      offset: location.offset,
      index,
    });
    const { file } = this.#files[location.fileIndex]!;
    const offset = chunkOffset(location, index);
    await this.#backend.read(file, offset, target);
    const expected = location.checksums[index]!;
    const actual = kernels().crc32c(target);
    if (actual === expected) return;
    throw new SpillwayError(
      'STATE_CORRUPT',
      'bytes on NVMe differ from what was written; check the disk and start from a checkpoint',
      { path: file.path, offset, length: target.byteLength, expected, actual },
    );
  }

  /**
   * Writes chunk `index` and its checksum. Not to be mixed with another access to the chunk.
   *
   * @param source exactly `chunkTransferBytes(location, index)` bytes, page-aligned; the padding
   *   behind the payload is set to zero. Unchanged by the caller until the promise settles
   * @throws NVME_FULL, IO_SHORT, IO_ERROR; the chunk counts as never written then
   */
  async writeChunk(
    location: NvmeLocation,
    index: number,
    source: Uint8Array<SharedArrayBuffer>,
  ): Promise<void> {
    this.#assertChunk(location, index, source);
    source.fill(0, chunkPayloadBytes(location, index));
    const written = this.#writtenOf(location);
    written[index] = 0;
    const checksum = kernels().crc32c(source);
    const { file } = this.#files[location.fileIndex]!;
    await this.#backend.write(file, chunkOffset(location, index), source);
    location.checksums[index] = checksum;
    written[index] = 1;
  }

  /**
   * Writes every state's header with its checksums. No write may be in flight, and every chunk
   * must have been written.
   *
   * @param step optimizer step whose result the payloads are
   */
  async sealHeaders(generation: number, step: number): Promise<void> {
    await this.#writeHeaders({ generation, step });
  }

  /** Puts what was written on stable storage: one flush per file. */
  async flush(): Promise<void> {
    for (const { file } of this.#files) await this.#backend.flush(file);
  }

  /** Closes and unlocks the files; with `remove`, deletes what runs of this name keep in their
   * folders, and the folders when nothing else is in there. Idempotent. */
  dispose({ remove }: { readonly remove: boolean }): Promise<void> {
    this.#disposal ??= this.#dispose(remove);
    return this.#disposal;
  }

  async #dispose(remove: boolean): Promise<void> {
    this.#liveBytes = 0;
    await this.#backend.dispose();
    if (!remove) return;
    for (const { folder } of this.#files) await removeOwn(folder);
  }

  async #writeHeaders(seal: { generation: number; step: number } | undefined): Promise<void> {
    const { states } = this.layout;
    const headerBytes = Math.max(0, ...states.map((region) => region.headerBytes));
    if (headerBytes === 0) return;
    const { bytes } = createSlab(HEADER_WRITES * headerBytes, { hugePages: false });
    for (let first = 0; first < states.length; first += HEADER_WRITES) {
      const batch = states.slice(first, first + HEADER_WRITES);
      const writes = batch.map((region, index) => {
        const start = index * headerBytes;
        return this.#writeHeader(region, bytes.subarray(start, start + region.headerBytes), seal);
      });
      // All writes end before an error leaves: their buffers are in flight until then.
      await settleAll(writes);
    }
  }

  async #writeHeader(
    region: StateRegion,
    target: Uint8Array<SharedArrayBuffer>,
    seal: { generation: number; step: number } | undefined,
  ): Promise<void> {
    const { location, written } = this.#states.get(stateKey(region.shard, region.state))!;
    assert(seal === undefined || written.every((flag) => flag === 1), 'a sealed slot is complete');
    const { file } = this.#files[region.fileIndex]!;
    for (const [slot, { headerOffset }] of region.slots.entries()) {
      encodeSlotHeader(
        {
          shard: region.shard,
          state: region.state,
          slot,
          elementType: region.elementType,
          generation: seal?.generation ?? 0,
          step: seal?.step ?? 0,
          payloadBytes: region.byteLength,
          chunkCount: region.chunkCount,
          // Only slot A is in use until the store commits generations.
          checksums: seal !== undefined && slot === 0 ? location.checksums : undefined,
        },
        target,
      );
      await this.#backend.write(file, headerOffset, target);
    }
  }

  #payload(region: Region, offset: number): Payload {
    const checksums = new Uint32Array(new SharedArrayBuffer(4 * region.chunkCount));
    const written = new Uint8Array(region.chunkCount);
    this.#written.set(checksums, written);
    const { fileIndex, byteLength, chunkBytes } = region;
    const { fd } = this.#files[fileIndex]!.file;
    return {
      location: { kind: 'nvme', fileIndex, fd, offset, byteLength, chunkBytes, checksums },
      written,
    };
  }

  #writtenOf(location: NvmeLocation): Uint8Array {
    const written = this.#written.get(location.checksums);
    assert(written !== undefined, 'the location is one of this volume');
    return written;
  }

  #assertChunk(location: NvmeLocation, index: number, bytes: Uint8Array): void {
    const exists = index >= 0 && index < location.checksums.length;
    assert(exists, 'the chunk exists', { index, chunkCount: location.checksums.length });
    const neededBytes = chunkTransferBytes(location, index);
    assert(bytes.byteLength === neededBytes, 'a buffer holds one whole padded chunk', {
      byteLength: bytes.byteLength,
      neededBytes,
    });
  }
}

async function openIn(folder: string, index: number, backend: IoBackend): Promise<OpenFile> {
  try {
    await mkdir(folder, { recursive: true, mode: 0o700 });
  } catch (error) {
    throw openFailure(folder, error);
  }
  const path = join(folder, `shards-${index}.bin`);
  const created = !(await fileExists(path));
  return { file: await backend.open(path), folder, created };
}

/** Data files, their portable locks, and the shard directory. */
const OWN_NAMES = /^(shards-\d+\.bin(\.lock)?|directory)$/;

/** Removes a run's files and then its folder, unless something else is in there. */
async function removeOwn(folder: string): Promise<void> {
  const names = await readdir(folder).catch(() => []); // Gone: one path may be given twice.
  for (const name of names.filter((name) => OWN_NAMES.test(name))) {
    await rm(join(folder, name), { recursive: true, force: true });
  }
  await rmdir(folder).catch(() => undefined);
}

/** Removes a file and then its folder, unless something else is in there. */
async function removeFile(path: string, folder: string): Promise<void> {
  await rm(path, { force: true });
  await rmdir(folder).catch(() => undefined);
}

function budgetFailure(neededBytes: number, budgetBytes: number): SpillwayError {
  return new SpillwayError(
    'BUDGET_TOO_SMALL',
    `NVMe tier needs ${formatBytes(neededBytes)}; raise nvme_memory to at least that`,
    { neededBytes, budgetBytes },
  );
}
