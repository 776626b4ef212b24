/**
 * @file Opens, locks, sizes and closes the data files of every backend.
 *
 * A file is opened once per process, with O_DIRECT where system and disk offer it, and its
 * descriptor serves all threads. Owns the descriptor and the lock until `closeDataFile`.
 */
import { constants, type Stats } from 'node:fs';
import { open, stat, type FileHandle } from 'node:fs/promises';

import { errnoOf } from '../../core/errno.js';
import { SpillwayError, assert } from '../../core/errors.js';
import { IO_ALIGNMENT } from '../../core/types.js';
import { native } from '../native/binding.js';
import { lockFile, type FileLock } from './file-lock.js';
import type { IoFile } from './io-backend.js';
import { errnoFailure, errnoName, freeBytes, systemFailure } from './io-failure.js';

/** Linux moves at most this much per request. */
const MAX_TRANSFER_BYTES = 2 ** 31 - 4096;

/** An open, locked file. */
export interface DataFile extends IoFile {
  readonly handle: FileHandle;
  readonly lock: FileLock;
}

/**
 * Opens for reading and writing, creating the file when absent, and locks it.
 *
 * Without the addon there is no O_DIRECT: nobody could align buffers in memory.
 *
 * @throws STORE_LOCKED, PATH_UNWRITABLE, IO_ERROR; the file is closed then
 */
export async function openDataFile(path: string): Promise<DataFile> {
  const { handle, direct } = await openHandle(path, native() !== undefined);
  try {
    return { path, fd: handle.fd, direct, handle, lock: lockFile(path, handle.fd) };
  } catch (error) {
    await handle.close();
    throw error;
  }
}

async function openHandle(
  path: string,
  wantsDirect: boolean,
): Promise<{ handle: FileHandle; direct: boolean }> {
  const flags = constants.O_RDWR | constants.O_CREAT;
  // Typed as a number everywhere, absent at run time except on Linux.
  const directFlag = (constants as Partial<typeof constants>).O_DIRECT ?? 0;
  if (wantsDirect && directFlag !== 0) {
    try {
      return { handle: await open(path, flags | directFlag, 0o600), direct: true };
    } catch (error) {
      // A disk without O_DIRECT says EINVAL; any other error comes again below.
      if (errnoOf(error) !== 'EINVAL') throw openFailure(path, error);
    }
  }
  try {
    return { handle: await open(path, flags, 0o600), direct: false };
  } catch (error) {
    throw openFailure(path, error);
  }
}

/** Unlocks and closes. */
export async function closeDataFile(file: DataFile): Promise<void> {
  file.lock.release();
  await file.handle.close();
}

/**
 * Makes the file exactly `byteLength` bytes long, with its space allocated where the disk can.
 *
 * @throws NVME_FULL with neededBytes and freeBytes, IO_ERROR; the file keeps its old size then
 */
export async function reserveDataFile(file: DataFile, byteLength: number): Promise<void> {
  const request = { op: 'reserve', path: file.path, offset: 0, length: byteLength } as const;
  let before: Stats;
  try {
    before = await file.handle.stat();
  } catch (error) {
    throw systemFailure(request, error);
  }
  // Asking first spares other users of the disk a moment without any space.
  const missing = byteLength - before.blocks * 512;
  const free = freeBytes(file.path);
  if (free !== undefined && missing > free) throw errnoFailure(request, 'ENOSPC');
  const status = byteLength === 0 ? 0 : (native()?.fileReserve(file.fd, byteLength) ?? 0);
  const errno = status === 0 ? '' : errnoName(status);
  try {
    // Where space cannot be allocated ahead, a full disk shows when the file is first written.
    const sized = errno === '' || errno === 'EOPNOTSUPP' || errno === 'ENOSYS';
    await file.handle.truncate(sized ? byteLength : before.size);
    if (!sized) throw errnoFailure(request, errno);
  } catch (error) {
    throw error instanceof SpillwayError ? error : systemFailure(request, error);
  }
}

/** Checks what O_DIRECT demands of a transfer; a violation is a bug of the caller. */
export function assertTransfer(file: IoFile, offset: number, bytes: Uint8Array): void {
  assert(Number.isSafeInteger(offset) && offset >= 0, 'an offset is a byte count', { offset });
  assert(
    bytes.byteLength > 0 && bytes.byteLength <= MAX_TRANSFER_BYTES,
    'a transfer moves 1 byte to 2 GiB - 4096',
    { path: file.path, offset, length: bytes.byteLength },
  );
  if (!file.direct) return;
  assert(
    offset % IO_ALIGNMENT === 0 && bytes.byteLength % IO_ALIGNMENT === 0,
    'O_DIRECT transfers whole pages',
    { path: file.path, offset, length: bytes.byteLength },
  );
  const address = native()?.slabAddress(bytes) ?? 0;
  assert(address % IO_ALIGNMENT === 0, 'O_DIRECT buffers start at a page', { address });
}

/** Whether a regular file is at `path`. */
export async function fileExists(path: string): Promise<boolean> {
  try {
    return (await stat(path)).isFile();
  } catch (error) {
    if (errnoOf(error) === 'ENOENT' || errnoOf(error) === 'ENOTDIR') return false;
    throw openFailure(path, error);
  }
}

/** Errnos of a path that cannot be written, whatever the disk does. */
const PATH_ERRNOS: ReadonlySet<string> = new Set([
  'EACCES',
  'EPERM',
  'EROFS',
  'ENOENT',
  'ENOTDIR',
  'EISDIR',
  'EEXIST',
  'ELOOP',
  'ENAMETOOLONG',
  'ENXIO',
]);

/** The error for a file or folder that cannot be opened or made: PATH_UNWRITABLE, NVME_FULL or IO_ERROR. */
export function openFailure(path: string, error: unknown): SpillwayError {
  const errno = errnoOf(error);
  if (PATH_ERRNOS.has(errno)) {
    const message = `cannot write below nvme_path (${errno}); give a path that this user may write`;
    return new SpillwayError('PATH_UNWRITABLE', message, { path, errno }, error);
  }
  return systemFailure({ op: 'open', path, offset: 0, length: 0 }, error);
}
