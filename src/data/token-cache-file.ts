/**
 * @file One entry of the token cache as a file.
 *
 * Layout, integers in the machine's byte order (which is part of the key):
 *
 *     8 bytes  "SPWTOKEN"
 *     uint32   bytes of the header; uint32: its CRC-32
 *     header   JSON: key, counts, notes; length and CRC-32 of the row table and of each chunk
 *     int32[]  the row table, then each chunk (see token-arena.ts)
 *
 * Reading believes nothing: sizes are compared with the file's before memory is allocated, every
 * part with its checksum, and every row with the chunk that it lies in.
 */
import { crc32 } from 'node:zlib';
import type { FileHandle } from 'node:fs/promises';
import { z } from 'zod';
import { TokenArena } from './token-arena.js';
import type { TokenizedFiles } from './tokenize-files.js';

const MAGIC = 'SPWTOKEN';
const PREFIX_BYTES = 16;
const INT_BYTES = 4;

/** A header is some 40 bytes per 4 MiB chunk; more than this is none. */
const MAX_HEADER_BYTES = 2 ** 24;

const count = z.int().min(0);
const part = z.strictObject({ length: count, crc: count });
const headerSchema = z.strictObject({
  key: z.string(),
  lineCount: count,
  truncatedCount: count,
  skippedCount: count,
  notes: z.array(z.string()),
  rows: part,
  chunks: z.array(part),
});

/** Why a file is no entry; a plain error, since the cache only discards the file. */
class BrokenEntry extends Error {}

/** Writes `tokens` to an empty file. */
export async function writeTokens(
  file: FileHandle,
  key: string,
  tokens: TokenizedFiles,
): Promise<void> {
  const { rows, chunks } = tokens.arena.contents;
  const partOf = (values: Int32Array) => ({ length: values.length, crc: crc32(values) });
  const header = Buffer.from(
    JSON.stringify({
      key,
      lineCount: tokens.lineCount,
      truncatedCount: tokens.truncatedCount,
      skippedCount: tokens.skippedCount,
      notes: [...tokens.notes],
      rows: partOf(rows),
      chunks: chunks.map(partOf),
    } satisfies z.infer<typeof headerSchema>),
  );
  const prefix = Buffer.alloc(PREFIX_BYTES);
  prefix.write(MAGIC, 'latin1');
  prefix.writeUInt32LE(header.length, 8);
  prefix.writeUInt32LE(crc32(header), 12);
  // Each call continues where the last one ended.
  for (const values of [prefix, header, rows, ...chunks]) await file.writeFile(bytesOf(values));
}

/** Bytes that `writeTokens` writes at most, without notes beyond a kilobyte. */
export function entryBytes({ arena }: TokenizedFiles): number {
  const { rows, chunks } = arena.contents;
  const ints = chunks.reduce((sum, chunk) => sum + chunk.length, rows.length);
  return PREFIX_BYTES + 1024 + 64 * chunks.length + ints * INT_BYTES;
}

/** The tokens in `file`. @throws an error that says what is wrong with it */
export async function readTokens(file: FileHandle, key: string): Promise<TokenizedFiles> {
  const { size } = await file.stat();
  const prefix = Buffer.alloc(PREFIX_BYTES);
  await readFully(file, prefix, 0);
  if (prefix.toString('latin1', 0, 8) !== MAGIC) throw new BrokenEntry('it is no token file');
  const headerBytes = prefix.readUInt32LE(8);
  if (headerBytes > MAX_HEADER_BYTES || headerBytes > size)
    throw new BrokenEntry('header too long');
  const headerText = Buffer.alloc(headerBytes);
  await readFully(file, headerText, PREFIX_BYTES);
  if (crc32(headerText) !== prefix.readUInt32LE(12))
    throw new BrokenEntry('checksum of the header');
  const header = headerSchema.parse(JSON.parse(headerText.toString()));
  if (header.key !== key) throw new BrokenEntry('it belongs to other data');
  const parts = [header.rows, ...header.chunks];
  const ints = parts.reduce((sum, { length }) => sum + length, 0);
  if (PREFIX_BYTES + headerBytes + ints * INT_BYTES !== size) throw new BrokenEntry('wrong size');
  let offset = PREFIX_BYTES + headerBytes;
  const values: Int32Array<ArrayBuffer>[] = [];
  for (const { length, crc } of parts) {
    const next = new Int32Array(length);
    await readFully(file, next, offset);
    if (crc32(next) !== crc) throw new BrokenEntry(`checksum at byte ${offset}`);
    values.push(next);
    offset += next.byteLength;
  }
  const [rows, ...chunks] = values;
  return {
    arena: TokenArena.from({ rows: rows!, chunks }),
    lineCount: header.lineCount,
    truncatedCount: header.truncatedCount,
    skippedCount: header.skippedCount,
    notes: header.notes,
  };
}

async function readFully(
  file: FileHandle,
  into: Uint8Array<ArrayBuffer> | Int32Array<ArrayBuffer>,
  offset: number,
): Promise<void> {
  const bytes = bytesOf(into);
  let done = 0;
  while (done < bytes.length) {
    const { bytesRead } = await file.read(bytes, done, bytes.length - done, offset + done);
    if (bytesRead === 0) throw new BrokenEntry('it ends early');
    done += bytesRead;
  }
}

function bytesOf({ buffer, byteOffset, byteLength }: Uint8Array | Int32Array): Uint8Array {
  return new Uint8Array(buffer, byteOffset, byteLength);
}
