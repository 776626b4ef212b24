/**
 * @file A folder per test file that is removed afterwards, and small helpers on files.
 */
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { afterAll } from 'vitest';

/** Makes the folder now and removes it after the tests of the calling file. */
export function temporaryFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'spillway-checkpoint-'));
  afterAll(() => {
    rmSync(folder, { recursive: true, force: true });
  });
  return folder;
}

/** Descriptors of this process that point into `folder` (Linux; elsewhere none are seen). */
export function openDescriptorCount(): number {
  return readdirSync('/proc/self/fd').length;
}
