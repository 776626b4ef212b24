/**
 * @file Files that tests write and that disappear after the test file.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll } from 'vitest';
import { SpillwayError } from '../../core/errors.js';

/** Makes a folder for this test file; returns a function that writes files there. */
export function temporaryFiles(): (contents: string | Uint8Array, name?: string) => string {
  const folder = mkdtempSync(join(tmpdir(), 'spillway-data-'));
  afterAll(() => {
    rmSync(folder, { recursive: true });
  });
  let count = 0;
  return (contents, name) => {
    count += 1;
    const path = join(folder, name ?? `${count}.jsonl`);
    writeFileSync(path, contents);
    return path;
  };
}

/** The SpillwayError that `run` rejects with; anything else fails the test. */
export async function failureOf(run: () => Promise<unknown>): Promise<SpillwayError> {
  try {
    await run();
  } catch (error) {
    if (error instanceof SpillwayError) return error;
    throw error;
  }
  throw new Error('did not fail');
}
