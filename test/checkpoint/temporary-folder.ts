/**
 * @file A folder per test file that is removed afterwards, and small helpers on files.
 */
import { existsSync, mkdtempSync, readdirSync, readlinkSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { afterAll } from 'vitest';

/** A file system in memory, where the machine has one. */
const MEMORY = existsSync('/dev/shm') ? '/dev/shm' : tmpdir();

/** Makes the folder now and removes it after the tests of the calling file. */
export function temporaryFolder(where: 'disk' | 'memory' = 'disk'): string {
  const parent = where === 'memory' ? MEMORY : tmpdir();
  const folder = mkdtempSync(join(parent, 'spillway-checkpoint-'));
  afterAll(() => {
    rmSync(folder, { recursive: true, force: true });
  });
  return folder;
}

/** Descriptors of this process that are open below `folder` (Linux). */
export function openDescriptorCount(folder: string): number {
  const targets = readdirSync('/proc/self/fd').map((fd) => {
    try {
      return readlinkSync(`/proc/self/fd/${fd}`);
    } catch {
      return ''; // The descriptor of the listing itself is closed by now.
    }
  });
  return targets.filter((target) => target.startsWith(folder)).length;
}
