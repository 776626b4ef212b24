/**
 * @file A folder of configuration files per test file, and loading as the command line would.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll } from 'vitest';
import { SpillwayError } from '../../core/errors.js';
import type { Logger } from '../../core/logger.js';
import { loadConfig } from '../../src/config/load-config.js';
import { parseFlags } from '../../src/config/parse-flags.js';
import type { TrainConfig } from '../../src/config/train-config.js';

export const folder = mkdtempSync(join(tmpdir(), 'spillway-config-'));
afterAll(() => {
  rmSync(folder, { recursive: true });
});

const budgetSources = { availableMemory: () => 8 * 2 ** 30, freeSpace: () => 100 * 2 ** 30 };

/** Flags of the keys without which nothing loads. */
export const REQUIRED = ['--model_name_or_path', 'm', '--data_files', 'd.jsonl'];

let fileCount = 0;

/** Path of a new file that holds `text`. */
export function fileWith(text: string): string {
  fileCount += 1;
  const path = join(folder, `${fileCount}.yaml`);
  writeFileSync(path, text);
  return path;
}

/** Loads what arguments and a file say, on a machine with 8 GiB. */
export function load(args: string[], file?: string, logger?: Logger): Promise<TrainConfig> {
  return loadConfig({
    file,
    flags: parseFlags(args).values,
    budgetSources,
    ...(logger === undefined ? {} : { logger }),
  });
}

/** The error that `run` fails with. */
export async function failure(run: () => unknown): Promise<SpillwayError> {
  try {
    await run();
  } catch (error) {
    if (error instanceof SpillwayError) return error;
    throw error;
  }
  throw new Error('did not fail');
}

/** A logger that keeps what it is told. */
export function recorder(): Logger & { readonly lines: string[] } {
  const lines: string[] = [];
  return {
    lines,
    info: (message) => void lines.push(`info: ${message}`),
    warn: (message) => void lines.push(`warn: ${message}`),
  };
}
