/**
 * @file The folder that exists nearest to a path that need not.
 */
import { statSync } from 'node:fs';
import { dirname, resolve } from 'node:path';

/** `path` itself when it is a folder, else the nearest one above it; at last the root. */
export function nearestFolder(path: string): string {
  let folder = resolve(path);
  while (!isFolder(folder) && dirname(folder) !== folder) folder = dirname(folder);
  return folder;
}

function isFolder(path: string): boolean {
  try {
    return statSync(path).isDirectory();
  } catch {
    // Absent, or hidden by permissions: either way a folder above answers.
    return false;
  }
}
