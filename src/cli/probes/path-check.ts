/**
 * @file A folder of the NVMe tier: free space, whether it can be written, O_DIRECT and its grain.
 *
 * Writes a small file into the folder, or into the nearest one above that exists, and removes it.
 */
import { closeSync, constants, existsSync, openSync, rmSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { formatBytes } from '../../../core/bytes.js';
import { errnoOf } from '../../../core/errno.js';
import { IO_ALIGNMENT } from '../../../core/types.js';
import { createSlab } from '../../../tiers/host/slab.js';
import { native } from '../../../tiers/native/binding.js';
import { freeSpaceOf } from '../../config/free-space.js';
import { nearestFolder } from '../../config/nearest-folder.js';
import type { Check } from './check.js';

/** Grains that disks have; Spillway transfers multiples of 4096. */
const GRAINS = [512, 1024, 2048, IO_ALIGNMENT] as const;

/** What writing a file told. */
interface Written {
  readonly writable: boolean;
  readonly direct: boolean;
  /** Smallest transfer that O_DIRECT takes. */
  readonly alignmentBytes: number | null;
  readonly reason: string | null;
}

export function checkNvmePath(path: string): Check {
  const folder = nearestFolder(path);
  const { freeBytes } = freeSpaceOf(path);
  const written = tryWriting(folder);
  const free = `${formatBytes(freeBytes)} free`;
  const how = written.direct
    ? `O_DIRECT, alignment ${written.alignmentBytes ?? 'unknown'}`
    : (written.reason ?? '');
  return {
    name: 'nvme_path',
    ok: written.direct,
    summary: `${path}: ${free}; ${how}`,
    cost: costOf(written),
    facts: {
      path,
      exists: existsSync(path),
      writable: written.writable,
      direct: written.direct,
      alignment_bytes: written.alignmentBytes,
      free_bytes: freeBytes,
      reason: written.reason,
    },
  };
}

function costOf(written: Written): string | null {
  if (written.direct) return null;
  if (!written.writable) return 'cannot hold the NVMe tier; give a folder that you may write to';
  return 'transfers go through the page cache: copied once more, and competing for memory';
}

function tryWriting(folder: string): Written {
  const file = join(folder, `.spillway-doctor-${process.pid}`);
  const flags = constants.O_RDWR | constants.O_CREAT | constants.O_EXCL;
  const failed = { direct: false, alignmentBytes: null };
  let fd: number;
  try {
    fd = openSync(file, flags, 0o600);
  } catch (error) {
    return { ...failed, writable: false, reason: `cannot be written (${errnoOf(error)})` };
  }
  closeSync(fd);
  try {
    return { ...failed, writable: true, ...tryDirect(file) };
  } finally {
    rmSync(file);
  }
}

function tryDirect(file: string): Omit<Written, 'writable'> {
  const failed = { direct: false, alignmentBytes: null };
  // Typed as a number everywhere, absent at run time except on Linux.
  const directFlag = (constants as Partial<typeof constants>).O_DIRECT;
  if (native() === undefined || directFlag === undefined) {
    return { ...failed, reason: 'no O_DIRECT without the addon, which aligns memory' };
  }
  let fd: number;
  try {
    fd = openSync(file, constants.O_RDWR | directFlag);
  } catch (error) {
    return { ...failed, reason: `the file system refuses O_DIRECT (${errnoOf(error)})` };
  }
  try {
    const { bytes } = createSlab(2 * IO_ALIGNMENT, { hugePages: false });
    // Offset, length and address are odd multiples of the grain, so a coarser one is refused.
    const alignmentBytes =
      GRAINS.find((grain) => accepts(fd, bytes.subarray(grain), grain)) ?? null;
    const reason = alignmentBytes === null ? 'O_DIRECT transfers of 4096 bytes are refused' : null;
    return { direct: alignmentBytes !== null, alignmentBytes, reason };
  } finally {
    closeSync(fd);
  }
}

function accepts(fd: number, bytes: Uint8Array, grain: number): boolean {
  try {
    return writeSync(fd, bytes, 0, grain, grain) === grain;
  } catch {
    return false;
  }
}
