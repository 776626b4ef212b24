/**
 * @file The header before a slot's payload: enough to rebuild the directory from the data files.
 *
 * Little-endian, padded with zeros to a multiple of 4096 bytes:
 *
 *   0  magic "SPWYSLOT"        8  version u32            12  shard u32
 *  16  state u16              18  slot u16               20  element type u16   22  zero u16
 *  24  generation u64         32  step u64               40  payload bytes u64
 *  48  chunk count u32        52  sealed u32 (0 or 1)    56  zero u32
 *  60  CRC-32C of the whole header, computed with this field zero
 *  64  CRC-32C of each chunk, u32 each; zeros until the slot is sealed
 *
 * Up to 1008 chunks (264 M elements) fit one page; a larger shard has more pages.
 */
import { alignUp } from '../../core/bytes.js';
import { SpillwayError, assert } from '../../core/errors.js';
import { IO_ALIGNMENT, type ElementType, type ShardId, type StateName } from '../../core/types.js';
import { kernels } from '../native/binding.js';

const MAGIC = 0x544f_4c53_5957_5053n; // "SPWYSLOT", little-endian.
const VERSION = 1;
const CRC_OFFSET = 60;
const CHECKSUMS_OFFSET = 64;

/** Positions are stored numbers: append only. */
const STATE_CODES: readonly StateName[] = ['param', 'master_lo', 'exp_avg', 'exp_avg_sq', 'grad'];
const TYPE_CODES: readonly ElementType[] = ['float32', 'bfloat16', 'float16', 'int32', 'uint16'];

/** What a header says. */
export interface SlotHeader {
  readonly shard: ShardId;
  readonly state: StateName;
  /** 0 (A) or 1 (B). */
  readonly slot: number;
  readonly elementType: ElementType;
  readonly generation: number;
  /** Optimizer step after which the payload was complete; 0 for loaded weights. */
  readonly step: number;
  /** Bytes without padding. */
  readonly payloadBytes: number;
  readonly chunkCount: number;
  /** CRC-32C of each chunk's padded bytes; undefined while the payload is not complete. */
  readonly checksums: Uint32Array | undefined;
}

/** Bytes of the header of a slot with `chunkCount` chunks; a multiple of 4096. */
export function slotHeaderBytes(chunkCount: number): number {
  return alignUp(CHECKSUMS_OFFSET + 4 * chunkCount, IO_ALIGNMENT);
}

/** Writes `header` into `target`, which has exactly `slotHeaderBytes(header.chunkCount)` bytes. */
export function encodeSlotHeader(header: SlotHeader, target: Uint8Array): void {
  const { chunkCount, checksums } = header;
  assert(target.byteLength === slotHeaderBytes(chunkCount), 'the header fills its pages');
  assert(checksums === undefined || checksums.length === chunkCount, 'one checksum per chunk');
  const view = new DataView(target.buffer, target.byteOffset, target.byteLength);
  target.fill(0);
  view.setBigUint64(0, MAGIC, true);
  view.setUint32(8, VERSION, true);
  view.setUint32(12, header.shard, true);
  view.setUint16(16, STATE_CODES.indexOf(header.state), true);
  view.setUint16(18, header.slot, true);
  view.setUint16(20, TYPE_CODES.indexOf(header.elementType), true);
  view.setBigUint64(24, BigInt(header.generation), true);
  view.setBigUint64(32, BigInt(header.step), true);
  view.setBigUint64(40, BigInt(header.payloadBytes), true);
  view.setUint32(48, chunkCount, true);
  view.setUint32(52, checksums === undefined ? 0 : 1, true);
  checksums?.forEach((checksum, index) => {
    view.setUint32(CHECKSUMS_OFFSET + 4 * index, checksum, true);
  });
  view.setUint32(CRC_OFFSET, kernels().crc32c(target), true);
}

/**
 * Reads a header.
 *
 * @param source all pages of the header; not changed
 * @param path file, for the error
 * @param offset bytes from the file's start to `source`, for the error
 * @throws STATE_CORRUPT when any byte differs from what was encoded
 */
export function decodeSlotHeader(source: Uint8Array, path: string, offset: number): SlotHeader {
  const corrupt = (what: string, facts: Record<string, number | string>): never => {
    const message = `slot header is damaged: ${what}; restore the store or start afresh`;
    throw new SpillwayError('STATE_CORRUPT', message, { path, offset, ...facts });
  };
  const bytes = Uint8Array.from(source);
  const view = new DataView(bytes.buffer);
  if (bytes.byteLength < IO_ALIGNMENT) corrupt('too short', { bytes: bytes.byteLength });
  const magic = view.getBigUint64(0, true);
  if (magic !== MAGIC) corrupt('no magic', { magic: magic.toString(16) });
  const version = view.getUint32(8, true);
  if (version !== VERSION) corrupt('unknown version', { version });
  const expected = view.getUint32(CRC_OFFSET, true);
  view.setUint32(CRC_OFFSET, 0, true);
  const actual = kernels().crc32c(bytes);
  if (actual !== expected) corrupt('checksum', { expected, actual });
  const chunkCount = view.getUint32(48, true);
  if (slotHeaderBytes(chunkCount) !== bytes.byteLength) corrupt('chunk count', { chunkCount });
  const state = STATE_CODES[view.getUint16(16, true)];
  const elementType = TYPE_CODES[view.getUint16(20, true)];
  if (state === undefined || elementType === undefined) return corrupt('unknown code', {});
  return {
    shard: view.getUint32(12, true),
    state,
    slot: view.getUint16(18, true),
    elementType,
    generation: Number(view.getBigUint64(24, true)),
    step: Number(view.getBigUint64(32, true)),
    payloadBytes: Number(view.getBigUint64(40, true)),
    chunkCount,
    checksums:
      view.getUint32(52, true) === 0
        ? undefined
        : new Uint32Array(bytes.buffer, CHECKSUMS_OFFSET, chunkCount).slice(),
  };
}
