/**
 * @file The checkpoints of an output folder, after what a killed run left half done is put right.
 */
import { readdir, rm } from 'node:fs/promises';
import { join, resolve } from 'node:path';

import { errnoOf } from '../../core/errno.js';
import { readError, writeError } from './file-errors.js';
import { completePublication } from './publish-files.js';
import { recoverReplaced } from './replace-folder.js';

const CHECKPOINT = /^checkpoint-(\d+)$/;
const ASIDE = /^\.old-(checkpoint-\d+)$/;
const TEMPORARY = /^\.tmp-(checkpoint-\d+|save)$/;

/** A checkpoint in an output folder. */
export interface CheckpointFolder {
  /** Optimizer steps done. */
  readonly step: number;
  /** Absolute path. */
  readonly folder: string;
}

/**
 * Folders `checkpoint-<step>` of `outputDir`, by ascending step; none when it does not exist.
 *
 * For the run that owns `outputDir`, and not while it saves: a replacement that was interrupted is
 * undone (the older checkpoint of that step comes back) or completed, so is a final save; half
 * written and half removed checkpoints are removed.
 *
 * @throws PATH_UNWRITABLE, IO_ERROR
 */
export async function listCheckpoints(outputDir: string): Promise<CheckpointFolder[]> {
  const parent = resolve(outputDir);
  if (!(await repair(parent))) return [];
  const found: CheckpointFolder[] = [];
  for (const entry of await readdir(parent, { withFileTypes: true })) {
    const step = CHECKPOINT.exec(entry.name)?.[1];
    if (step !== undefined && entry.isDirectory() && Number.isSafeInteger(Number(step))) {
      found.push({ step: Number(step), folder: join(parent, entry.name) });
    }
  }
  return found.sort((a, b) => a.step - b.step);
}

/** Whether the folder exists; then nothing in it is half done any more. */
async function repair(parent: string): Promise<boolean> {
  const names = await readdir(parent).catch((error: unknown) => {
    if (errnoOf(error) === 'ENOENT') return undefined;
    throw readError(parent, error);
  });
  if (names === undefined) return false;
  try {
    await completePublication(parent);
    for (const name of names) {
      const older = ASIDE.exec(name)?.[1];
      if (older !== undefined) await recoverReplaced(join(parent, older));
      else if (TEMPORARY.test(name)) await rm(join(parent, name), { recursive: true });
    }
  } catch (error) {
    throw writeError(parent, error);
  }
  return true;
}
