/**
 * @file Whether a file is whole as far as its head tells, before LMDB maps it: LMDB trusts what it
 * maps, so that a file cut short, or another program's, ends the process by a signal.
 *
 * The first two pages are a pair of heads, written in turn (mdb.c, MDB_meta; little-endian): after
 * the page's own 24 bytes a magic number (4) and a version (4), at 48 the page size (4), at 144 the
 * number of the last page in use (8). LMDB writes a head after the pages that it counts.
 */
import { open } from 'node:fs/promises';

const MAGIC = 0xbeefc0de;
const AT = { magic: 24, pageSize: 48, lastPage: 144 };
const HEAD_BYTES = AT.lastPage + 8;

/** Of every system that LMDB runs on. */
const PAGE_SIZES = { least: 2 ** 12, most: 2 ** 16 };

/** @throws what node:fs throws for a file that cannot be read */
export async function isLmdbFile(path: string): Promise<boolean> {
  const file = await open(path, 'r');
  try {
    const { size } = await file.stat();
    const headAt = async (position: number): Promise<Buffer | undefined> => {
      const { bytesRead, buffer } = await file.read(
        Buffer.alloc(HEAD_BYTES),
        0,
        HEAD_BYTES,
        position,
      );
      return bytesRead === HEAD_BYTES ? buffer : undefined;
    };
    const first = await headAt(0);
    if (first === undefined) return false;
    const pageSize = first.readUInt32LE(AT.pageSize);
    if (pageSize < PAGE_SIZES.least || pageSize > PAGE_SIZES.most) return false;
    const second = await headAt(pageSize);
    return (
      second?.readUInt32LE(AT.pageSize) === pageSize &&
      [first, second].every(
        (head) =>
          head.readUInt32LE(AT.magic) === MAGIC &&
          (head.readBigUInt64LE(AT.lastPage) + 1n) * BigInt(pageSize) <= BigInt(size),
      )
    );
  } finally {
    await file.close();
  }
}
