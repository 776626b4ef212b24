/**
 * @file Free space of the file systems under folders that need not exist yet.
 */
import { statSync, statfsSync } from 'node:fs';
import { nearestFolder } from './nearest-folder.js';

/** Free bytes for this user on the file system that holds (or will hold) `path`. */
export interface FreeSpace {
  readonly path: string;
  /** Number of the file system: paths with equal numbers share their free space. */
  readonly deviceNumber: number;
  readonly freeBytes: number;
}

/** Asks at the nearest folder that exists. */
export function freeSpaceOf(path: string): FreeSpace {
  const folder = nearestFolder(path);
  const { bavail, bsize } = statfsSync(folder);
  return { path, deviceNumber: statSync(folder).dev, freeBytes: bavail * bsize };
}

/** Free bytes over all `paths`; a file system under several of them counts once. */
export function totalFreeBytes(paths: readonly string[]): number {
  const byDevice = new Map(
    paths.map((path) => {
      const { deviceNumber, freeBytes } = freeSpaceOf(path);
      return [deviceNumber, freeBytes] as const;
    }),
  );
  return [...byDevice.values()].reduce((sum, bytes) => sum + bytes, 0);
}
