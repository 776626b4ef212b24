/**
 * @file The NVMe-resident states of one shard, streamed through staging memory tile by tile.
 *
 * A tile is one chunk of each state. Tile t lies in tile set `t mod sets`. With three sets the
 * reads of tile t+1 and the writes of tile t-1 are in flight while tile t is computed. With two,
 * the reads of t+1 are, which had to wait for the writes of t-1: those were queued together with
 * the reads of t and end with them, so that the disk seldom rests. With one set nothing overlaps.
 *
 * Reads are compared with the chunk's checksum before use. A new checksum is stored when its write
 * is complete: if a write fails or the update is cancelled, every chunk that holds its old or its
 * new bytes verifies, and one that holds a mixture does not.
 *
 * Owns no memory and no descriptor. `finish` or `abandon` must be called: until then requests on
 * the staging memory may be in flight.
 */
import { alignUp } from '../../core/bytes.js';
import { isCoded, SpillwayError, type ErrorFacts } from '../../core/errors.js';
import { CHUNK_ELEMENTS, IO_ALIGNMENT, type StateName } from '../../core/types.js';
import type { Kernels } from '../../tiers/native/native-binding.js';
import { chunkCount, chunkOffset, chunkTransferBytes } from '../../tiers/nvme/chunk.js';
import type { SyncIo } from '../../tiers/nvme/io-backend.js';
import type { NvmeLocation } from '../../tiers/state-location.js';
import { stagingNeed } from './staging.js';

/** One state to stream. */
export interface NvmeState {
  readonly name: StateName;
  readonly location: NvmeLocation;
  readonly elementBytes: 2 | 4;
  /** Whether it is written back; the gradient is only read. */
  readonly writable: boolean;
}

/** One state's place in one tile set, and the request on it that has not been waited for. */
interface TileBuffer {
  readonly state: NvmeState;
  readonly bytes: Uint8Array<SharedArrayBuffer>;
  pending: 'none' | 'read' | 'write';
  ticket: number;
  tile: number;
  /** Checksum of the bytes being written. */
  checksum: number;
}

/** Streams of one shard. */
export class NvmeTiles {
  /** By tile set, then by state. */
  readonly #sets: readonly (readonly TileBuffer[])[];
  readonly #io: SyncIo;
  readonly #crc32c: Kernels['crc32c'];
  readonly #tileCount: number;
  #nextRead = 0;

  /**
   * @param length elements of the shard
   * @param staging at least `stagingNeed` bytes, aligned to 4096; in use until `finish`/`abandon`
   * @throws INTERNAL when `staging` is too small or a location does not fit `length`
   */
  constructor(
    states: readonly NvmeState[],
    length: number,
    depth: number,
    staging: Uint8Array<SharedArrayBuffer>,
    io: SyncIo,
    crc32c: Kernels['crc32c'],
  ) {
    for (const state of states) checkLocation(state, length);
    const sizes = states.map((state) => state.elementBytes);
    const neededBytes = stagingNeed(length, depth, sizes);
    if (neededBytes > staging.byteLength) {
      throw new SpillwayError(
        'INTERNAL',
        'shard does not fit the staging memory that the pool was created with',
        { neededBytes, stagingBytes: staging.byteLength, length, depth },
      );
    }
    this.#io = io;
    this.#crc32c = crc32c;
    this.#tileCount = Math.ceil(length / CHUNK_ELEMENTS);
    this.#sets = layOut(states, length, Math.min(depth, this.#tileCount), staging);
  }

  /** Starts reading tile `tile` and, with three sets, the next one; call before `take`. */
  readAhead(tile: number): void {
    this.#readUpTo(Math.max(tile, tile + this.#sets.length - 2));
  }

  /**
   * Waits for tile `tile`, starts with two sets reading the next one, and verifies.
   *
   * @returns each state's padded bytes, in the order of `states`; valid until `put`
   * @throws STATE_CORRUPT, and what `SyncIo.wait` throws
   */
  take(tile: number): readonly Uint8Array<SharedArrayBuffer>[] {
    const set = this.#set(tile);
    for (const buffer of set) this.#wait(buffer);
    if (this.#sets.length === 2) this.#readUpTo(tile + 1);
    return set.map((buffer) => {
      const bytes = buffer.bytes.subarray(0, chunkTransferBytes(buffer.state.location, tile));
      this.#verify(buffer, bytes);
      return bytes;
    });
  }

  /** Starts writing tile `tile` back, with new checksums, and the reads that may now follow. */
  put(tile: number): void {
    for (const buffer of this.#set(tile)) {
      const { state } = buffer;
      if (!state.writable) continue;
      const bytes = buffer.bytes.subarray(0, chunkTransferBytes(state.location, tile));
      // The padding was read as zeros, which its checksum says, and stays so.
      buffer.checksum = this.#crc32c(bytes);
      const offset = chunkOffset(state.location, tile);
      buffer.ticket = this.#withFacts(buffer, () =>
        this.#io.write(state.location.fd, offset, bytes),
      );
      buffer.pending = 'write';
    }
    this.#readUpTo(tile + 1);
  }

  /** Waits for all requests. @throws what the first failed one does, after waiting for all */
  finish(): void {
    const failure = this.#waitForAll();
    if (failure !== undefined) throw failure.error;
  }

  /** Waits for all requests and ignores how they end; for use when another error is on its way. */
  abandon(): void {
    this.#waitForAll();
  }

  #readUpTo(limit: number): void {
    const last = Math.min(limit, this.#tileCount - 1);
    while (this.#nextRead <= last) {
      const tile = this.#nextRead;
      for (const buffer of this.#set(tile)) {
        this.#wait(buffer);
        const { state } = buffer;
        const bytes = buffer.bytes.subarray(0, chunkTransferBytes(state.location, tile));
        const offset = chunkOffset(state.location, tile);
        buffer.tile = tile;
        buffer.ticket = this.#withFacts(buffer, () =>
          this.#io.read(state.location.fd, offset, bytes),
        );
        buffer.pending = 'read';
      }
      this.#nextRead += 1;
    }
  }

  #waitForAll(): { readonly error: unknown } | undefined {
    let failure: { readonly error: unknown } | undefined;
    for (const buffer of this.#sets.flat()) {
      try {
        this.#wait(buffer);
      } catch (error) {
        failure ??= { error };
      }
    }
    return failure;
  }

  /** Waits for the buffer's request, if any; each ticket is waited for once, also if it fails. */
  #wait(buffer: TileBuffer): void {
    const { pending, ticket, tile, state } = buffer;
    if (pending === 'none') return;
    buffer.pending = 'none';
    this.#withFacts(buffer, () => this.#io.wait(ticket));
    if (pending === 'write') state.location.checksums[tile] = buffer.checksum;
  }

  #verify(buffer: TileBuffer, bytes: Uint8Array): void {
    const { state, tile } = buffer;
    const expected = state.location.checksums[tile];
    const actual = this.#crc32c(bytes);
    if (actual === expected) return;
    throw new SpillwayError(
      'STATE_CORRUPT',
      'a stored state does not match its checksum; check the disk, then resume from a checkpoint',
      { ...factsOf(buffer), expected: expected ?? -1, actual },
    );
  }

  /** Runs `action`; an I/O error leaves with the state, file and chunk that it concerns. */
  #withFacts<T>(buffer: TileBuffer, action: () => T): T {
    try {
      return action();
    } catch (error) {
      if (!isCoded(error)) throw error;
      const facts: ErrorFacts = { ...factsOf(buffer), ...error.facts };
      throw new SpillwayError(error.code, error.message, facts, error);
    }
  }

  #set(tile: number): readonly TileBuffer[] {
    return this.#sets[tile % this.#sets.length] ?? [];
  }
}

/** Cuts the staging memory into `setCount` tile sets of one buffer per state. */
function layOut(
  states: readonly NvmeState[],
  length: number,
  setCount: number,
  staging: Uint8Array<SharedArrayBuffer>,
): TileBuffer[][] {
  let start = 0;
  return Array.from({ length: setCount }, () =>
    states.map((state): TileBuffer => {
      const elements = Math.min(length, CHUNK_ELEMENTS);
      const end = start + alignUp(elements * state.elementBytes, IO_ALIGNMENT);
      const bytes = staging.subarray(start, end);
      start = end;
      return { state, bytes, pending: 'none', ticket: -1, tile: -1, checksum: 0 };
    }),
  );
}

function checkLocation(state: NvmeState, length: number): void {
  const { byteLength, chunkBytes, checksums, offset, fd } = state.location;
  if (
    byteLength !== length * state.elementBytes ||
    chunkBytes !== CHUNK_ELEMENTS * state.elementBytes ||
    checksums.length < chunkCount(state.location) ||
    offset % IO_ALIGNMENT !== 0 ||
    fd < 0
  ) {
    throw new SpillwayError('INTERNAL', 'location of an NVMe state does not fit its shard', {
      state: state.name,
      length,
      byteLength,
      chunkBytes,
      checksums: checksums.length,
      offset,
      fd,
    });
  }
}

function factsOf({ state, tile }: TileBuffer): ErrorFacts {
  return {
    state: state.name,
    fileIndex: state.location.fileIndex,
    fd: state.location.fd,
    offset: chunkOffset(state.location, tile),
    chunk: tile,
  };
}
