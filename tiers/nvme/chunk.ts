/** @file Arithmetic of the chunks of a stored state: places and sizes, in bytes. */
import { alignUp } from '../../core/bytes.js';
import { IO_ALIGNMENT } from '../../core/types.js';
import type { NvmeLocation } from '../state-location.js';

/** Chunks of the state. */
export function chunkCount(location: NvmeLocation): number {
  return Math.ceil(location.byteLength / location.chunkBytes);
}

/** Bytes from the file's start to chunk `index`. */
export function chunkOffset(location: NvmeLocation, index: number): number {
  return location.offset + index * location.chunkBytes;
}

/** Payload bytes of chunk `index`, without padding. */
export function chunkPayloadBytes(location: NvmeLocation, index: number): number {
  return Math.min(location.chunkBytes, location.byteLength - index * location.chunkBytes);
}

/** Bytes that a transfer of chunk `index` moves. */
export function chunkTransferBytes(location: NvmeLocation, index: number): number {
  return alignUp(chunkPayloadBytes(location, index), IO_ALIGNMENT);
}
