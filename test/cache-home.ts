/**
 * @file The cache folder of a test run: no test reads or writes the user's.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** Makes an empty folder that is removed when this process ends. */
export function cacheHome(): string {
  const folder = mkdtempSync(join(tmpdir(), 'spillway-cache-'));
  process.once('exit', () => {
    rmSync(folder, { recursive: true, force: true });
  });
  return folder;
}
