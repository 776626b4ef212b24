/**
 * @file Where every region of the NVMe tier lies: a pure function from what is stored to files,
 * offsets and exact sizes, used by the plan before anything runs and by the volume.
 *
 * A state region has one or two slots, each a header (a multiple of 4096 bytes) followed by the
 * payload: whole chunks, the last one padded to 4096. A scratch region (spilled activations,
 * accumulators) is a payload without header. Regions are placed in the order given, each into the
 * file that is emptiest so far, the first of equals; all slots of a region lie in one file.
 */
import { alignUp } from '../../core/bytes.js';
import { assert } from '../../core/errors.js';
import {
  CHUNK_ELEMENTS,
  IO_ALIGNMENT,
  elementBytes,
  type ElementType,
  type ShardId,
  type StateName,
} from '../../core/types.js';
import { slotHeaderBytes } from './slot-header.js';

/** One state of one shard to store. */
export interface StateSpec {
  readonly shard: ShardId;
  readonly state: StateName;
  readonly elementCount: number;
  readonly elementType: ElementType;
}

/** A region without header, addressed by name. */
export interface ScratchSpec {
  readonly name: string;
  readonly elementCount: number;
  readonly elementType: ElementType;
}

/** What is to be stored. `slots` is 2 for a store that commits, 1 without durability. */
export interface LayoutRequest {
  readonly states: readonly StateSpec[];
  readonly scratch: readonly ScratchSpec[];
  readonly fileCount: number;
  readonly slots: 1 | 2;
}

/** A payload's place. */
export interface Region {
  readonly fileIndex: number;
  /** Payload bytes without padding. */
  readonly byteLength: number;
  /** Payload bytes with padding. */
  readonly paddedBytes: number;
  /** Bytes of a full chunk. */
  readonly chunkBytes: number;
  readonly chunkCount: number;
}

/** A slot's offsets in its file, in bytes. */
export interface SlotPlace {
  readonly headerOffset: number;
  readonly payloadOffset: number;
}

export interface StateRegion extends StateSpec, Region {
  readonly headerBytes: number;
  readonly slots: readonly SlotPlace[];
}

export interface ScratchRegion extends ScratchSpec, Region {
  readonly payloadOffset: number;
}

/** Regions in the order of the request, and each file's exact size. */
export interface Layout {
  readonly slots: 1 | 2;
  readonly fileBytes: readonly number[];
  /** Sum of `fileBytes`. */
  readonly totalBytes: number;
  readonly states: readonly StateRegion[];
  readonly scratch: readonly ScratchRegion[];
}

/** Places all regions. Duplicate states or names, and empty regions, are bugs of the caller. */
export function createLayout(request: LayoutRequest): Layout {
  assert(request.fileCount >= 1, 'a layout has at least one file', {
    fileCount: request.fileCount,
  });
  const fileBytes = Array.from({ length: request.fileCount }, () => 0);
  const seen = new Set<string>();
  const place = (key: string, bytes: number) => {
    assert(!seen.has(key), 'a region is placed once', { key });
    seen.add(key);
    const fileIndex = fileBytes.indexOf(Math.min(...fileBytes));
    const offset = fileBytes[fileIndex] ?? 0;
    fileBytes[fileIndex] = offset + bytes;
    return { fileIndex, offset };
  };
  const states = request.states.map((spec): StateRegion => {
    const size = regionSize(spec);
    const headerBytes = slotHeaderBytes(size.chunkCount);
    const slotBytes = headerBytes + size.paddedBytes;
    const key = stateKey(spec.shard, spec.state);
    const { fileIndex, offset } = place(key, slotBytes * request.slots);
    const slots = Array.from({ length: request.slots }, (_, slot) => ({
      headerOffset: offset + slot * slotBytes,
      payloadOffset: offset + slot * slotBytes + headerBytes,
    }));
    return { ...spec, ...size, fileIndex, headerBytes, slots };
  });
  const scratch = request.scratch.map((spec): ScratchRegion => {
    const size = regionSize(spec);
    const { fileIndex, offset } = place(`scratch ${spec.name}`, size.paddedBytes);
    return { ...spec, ...size, fileIndex, payloadOffset: offset };
  });
  const totalBytes = fileBytes.reduce((sum, bytes) => sum + bytes, 0);
  return { slots: request.slots, fileBytes, totalBytes, states, scratch };
}

/** Exact bytes of all files of `request`, headers and padding included. */
export function layoutBytes(request: LayoutRequest): number {
  let total = 0;
  for (const spec of request.states) {
    const { chunkCount, paddedBytes } = regionSize(spec);
    total += (slotHeaderBytes(chunkCount) + paddedBytes) * request.slots;
  }
  for (const spec of request.scratch) total += regionSize(spec).paddedBytes;
  return total;
}

/** Key of a state of a shard, e.g. `12/exp_avg`. */
export function stateKey(shard: ShardId, state: StateName): string {
  return `${shard}/${state}`;
}

function regionSize(spec: {
  readonly elementCount: number;
  readonly elementType: ElementType;
}): Omit<Region, 'fileIndex'> {
  const { elementCount, elementType } = spec;
  assert(Number.isSafeInteger(elementCount) && elementCount > 0, 'a region holds elements', {
    elementCount,
  });
  const byteLength = elementCount * elementBytes(elementType);
  return {
    byteLength,
    paddedBytes: alignUp(byteLength, IO_ALIGNMENT),
    chunkBytes: CHUNK_ELEMENTS * elementBytes(elementType),
    chunkCount: Math.ceil(elementCount / CHUNK_ELEMENTS),
  };
}
