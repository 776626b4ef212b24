/**
 * @file Writes a safetensors file tensor by tensor, in pieces of bounded size.
 *
 * The header is known ahead from names, dtypes and shapes. Data lie in the order given, wider
 * element types first, so that every tensor starts at a multiple of its element size (readers that
 * map the file need that; the format's own writer sorts likewise). Two buffers of at most 1 MiB: one
 * is filled while the other is written.
 */
import type { FileHandle } from 'node:fs/promises';

import { assert } from '../../core/errors.js';
import { writeDurableFile, writeFully } from './durable-file.js';
import {
  LENGTH_BYTES,
  MAX_HEADER_BYTES,
  dtypeBits,
  elementCount,
  type SafetensorsDtype,
} from './safetensors-header.js';

/** Bytes per piece. */
const PIECE_BYTES = 1_048_576;

/** The data start at a multiple of this many bytes, as the format's own writer does. */
const DATA_ALIGNMENT = 8;

interface TensorToWriteBase {
  readonly name: string;
  readonly shape: readonly number[];
}

/** A tensor of float32 elements. */
export interface Float32ToWrite extends TensorToWriteBase {
  readonly dtype: 'F32';
  /** Fills `target` with elements `offset … offset + target.length`; called in ascending order. */
  read(offset: number, target: Float32Array): Promise<void>;
}

/** A tensor of 16-bit elements, given as bits. `U16` is for the low half of the master weights. */
export interface BitsToWrite extends TensorToWriteBase {
  readonly dtype: 'BF16' | 'F16' | 'U16';
  /** Fills `target` with the bits of elements `offset … offset + target.length`, ascending. */
  read(offset: number, target: Uint16Array): Promise<void>;
}

export type TensorToWrite = Float32ToWrite | BitsToWrite;

/**
 * Writes `tensors` to `path`: temporary name, flush, rename.
 *
 * @throws OUTPUT_FULL, PATH_UNWRITABLE, IO_ERROR, or what a tensor's `read` throws; then the half
 *   file is removed and an earlier file at `path` is untouched
 */
export async function writeSafetensors(
  path: string,
  tensors: readonly TensorToWrite[],
): Promise<void> {
  const ordered = tensors.toSorted((a, b) => dtypeBits(b.dtype) - dtypeBits(a.dtype));
  const head = encodeHeader(ordered);
  await writeDurableFile(path, async (handle) => {
    await writeFully(handle, head, 0);
    await writeData(handle, ordered, head.length);
  });
}

/** Bytes of the file that `writeSafetensors` makes of `tensors`. */
export function safetensorsFileBytes(
  tensors: readonly { name: string; dtype: SafetensorsDtype; shape: readonly number[] }[],
): number {
  const ordered = tensors.toSorted((a, b) => dtypeBits(b.dtype) - dtypeBits(a.dtype));
  return ordered.reduce((sum, tensor) => sum + tensorBytes(tensor), encodeHeader(ordered).length);
}

/** Length field and padded JSON of `tensors`, whose data follow each other in this order. */
export function encodeHeader(
  tensors: readonly { name: string; dtype: SafetensorsDtype; shape: readonly number[] }[],
): Uint8Array {
  const names = new Set<string>();
  let begin = 0;
  const fields = tensors.map((tensor) => {
    assert(tensor.name !== '__metadata__' && !names.has(tensor.name), 'tensor names are unique', {
      name: tensor.name,
    });
    names.add(tensor.name);
    const end = begin + tensorBytes(tensor);
    const info = { dtype: tensor.dtype, shape: tensor.shape, data_offsets: [begin, end] };
    begin = end;
    // Not through an object: its integer-like keys would change their order.
    return `,${JSON.stringify(tensor.name)}:${JSON.stringify(info)}`;
  });
  const json = new TextEncoder().encode(`{"__metadata__":{"format":"pt"}${fields.join('')}}`);
  const jsonBytes = Math.ceil(json.length / DATA_ALIGNMENT) * DATA_ALIGNMENT;
  assert(jsonBytes <= MAX_HEADER_BYTES, 'the safetensors header is within the format limit');
  const head = new Uint8Array(LENGTH_BYTES + jsonBytes).fill(0x20);
  new DataView(head.buffer).setBigUint64(0, BigInt(jsonBytes), true);
  head.set(json, LENGTH_BYTES);
  return head;
}

function tensorBytes(tensor: { dtype: SafetensorsDtype; shape: readonly number[] }): number {
  const bytes = (elementCount(tensor.shape) * dtypeBits(tensor.dtype)) / 8;
  assert(Number.isSafeInteger(bytes), 'a tensor has fewer than 2^53 bytes');
  return bytes;
}

async function writeData(
  handle: FileHandle,
  tensors: readonly TensorToWrite[],
  dataStart: number,
): Promise<void> {
  const largest = tensors.reduce((most, tensor) => Math.max(most, tensorBytes(tensor)), 0);
  const bufferBytes = Math.min(PIECE_BYTES, largest);
  const buffers = [new ArrayBuffer(bufferBytes), new ArrayBuffer(bufferBytes)] as const;
  let position = dataStart;
  let turn: 0 | 1 = 0;
  let inFlight: Promise<void> = Promise.resolve();
  try {
    for (const tensor of tensors) {
      const length = elementCount(tensor.shape);
      const pieceLength = (PIECE_BYTES * 8) / dtypeBits(tensor.dtype);
      for (let offset = 0; offset < length; offset += pieceLength) {
        const count = Math.min(pieceLength, length - offset);
        // The other buffer may still be in flight; this one was awaited a turn ago.
        const bytes = await fill(tensor, offset, buffers[turn], count);
        await inFlight;
        inFlight = writeFully(handle, bytes, position);
        // Awaited next turn; a rejection before that must not count as unhandled.
        inFlight.catch(() => undefined);
        position += bytes.length;
        turn = turn === 0 ? 1 : 0;
      }
    }
    await inFlight;
  } finally {
    // After a failed `read` the write in flight must end before its descriptor closes.
    await inFlight.catch(() => undefined);
  }
}

async function fill(
  tensor: TensorToWrite,
  offset: number,
  buffer: ArrayBuffer,
  count: number,
): Promise<Uint8Array> {
  if (tensor.dtype === 'F32') {
    const target = new Float32Array(buffer, 0, count);
    await tensor.read(offset, target);
    return new Uint8Array(buffer, 0, target.byteLength);
  }
  const target = new Uint16Array(buffer, 0, count);
  await tensor.read(offset, target);
  return new Uint8Array(buffer, 0, target.byteLength);
}
