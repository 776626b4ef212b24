/**
 * @file Free space of the file systems under folders that need not exist yet.
 */
import { statSync, statfsSync } from 'node:fs';
import { dirname, resolve } from 'node:path';

/** Free bytes for this user on the file system that holds (or will hold) `path`. */
export interface FreeSpace {
  readonly path: string;
  /** Number of the file system: paths with equal numbers share their free space. */
  readonly deviceNumber: number;
  readonly freeBytes: number;
}

/** Looks at the nearest folder above `path` that exists. */
export function freeSpaceOf(path: string): FreeSpace {
  let folder = resolve(path);
  for (;;) {
    const stat = statSync(folder, { throwIfNoEntry: false });
    if (stat?.isDirectory() === true) {
      const { bavail, bsize } = statfsSync(folder);
      return { path, deviceNumber: stat.dev, freeBytes: bavail * bsize };
    }
    folder = dirname(folder);
  }
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
