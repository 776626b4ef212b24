/**
 * @file Where one state of one shard lives, as plain data that crosses worker threads.
 *
 * A state is stored as its elements in order. On NVMe it is divided into chunks of
 * `CHUNK_ELEMENTS` elements, each transferred whole (the last one padded to 4096 bytes with
 * zeros) and protected by a CRC-32C over its padded bytes, kept in a table that all threads share.
 */

/** In memory: the elements lie in `bytes` (host pool, or a host-addressable device's arena). */
export interface MemoryLocation {
  readonly kind: 'memory';
  readonly tier: 'device' | 'host';
  readonly bytes: Uint8Array<SharedArrayBuffer>;
}

/** On NVMe: chunk i starts at `offset + i * chunkBytes` of the file. */
export interface NvmeLocation {
  readonly kind: 'nvme';
  /** Index of the volume's file. */
  readonly fileIndex: number;
  /** Descriptor of that file, for workers. */
  readonly fd: number;
  /** Bytes from the start of the file to the payload; a multiple of 4096. */
  readonly offset: number;
  /** Payload bytes without padding. */
  readonly byteLength: number;
  /** Bytes of a full chunk: `CHUNK_ELEMENTS` times the element's bytes. */
  readonly chunkBytes: number;
  /** CRC-32C of each chunk's padded bytes; shared by all threads. */
  readonly checksums: Uint32Array<SharedArrayBuffer>;
}

export type StateLocation = MemoryLocation | NvmeLocation;
