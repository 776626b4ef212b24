/**
 * @file Brings a complete save into a folder that holds other things too, file by file.
 *
 * The name of the save's own folder says how far it has come, so that a crash at any instant can be
 * carried on from there, and each phase can be repeated:
 *
 * - `.tmp-save`: being written. The folder is the old model.
 * - `.save-ready`: complete and on stable storage. The old model's config.json, indexes and weights
 *   are being removed, in this order.
 * - `.save-moving`: they are gone. The new files are being moved in: shards before the index that
 *   lists them, config.json last.
 *
 * So the folder loads as the old model, then not at all (no config.json), then as the new one; old
 * weights never lie beside new ones.
 */
import { readdir, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';

import { errnoOf } from '../../core/errno.js';
import { flushPath } from './durable-file.js';
import { exists } from './file-errors.js';
import { isIndexFile, isSavedTensorFile } from './tensor-file-names.js';

/** Where a save into a folder is written, within that folder. */
export const INTO_STAGING_NAME = '.tmp-save';

const READY_NAME = '.save-ready';
const MOVING_NAME = '.save-moving';
const CONFIG_NAME = 'config.json';

/** Publishes `<folder>/.tmp-save`, whose files are complete and flushed. @throws system errors */
export async function publishInto(folder: string): Promise<void> {
  await rename(join(folder, INTO_STAGING_NAME), join(folder, READY_NAME));
  await flushPath(folder);
  await completePublication(folder);
}

/**
 * Carries on the publication that a crash has interrupted in `folder`, if there is one.
 *
 * Only for who owns the folder: not while another process saves into it. @throws system errors
 */
export async function completePublication(folder: string): Promise<void> {
  const [ready, moving] = [join(folder, READY_NAME), join(folder, MOVING_NAME)];
  if (await exists(ready)) {
    await removeOldModel(folder, await exists(join(ready, CONFIG_NAME)));
    await rename(ready, moving);
    await flushPath(folder);
  }
  if (await exists(moving)) await moveIn(moving, folder);
}

/** The interrupted save within `folder` that `completePublication` would carry on, if any. */
export async function findInterruptedSave(folder: string): Promise<string | undefined> {
  for (const name of [READY_NAME, MOVING_NAME]) {
    if (await exists(join(folder, name))) return join(folder, name);
  }
  return undefined;
}

async function removeOldModel(folder: string, withConfig: boolean): Promise<void> {
  const names = (await readdir(folder)).filter(isSavedTensorFile);
  const indexes = names.filter(isIndexFile);
  const rest = names.filter((name) => !isIndexFile(name));
  for (const name of [...(withConfig ? [CONFIG_NAME] : []), ...indexes, ...rest]) {
    await rm(join(folder, name), { force: true });
  }
  await flushPath(folder);
}

async function moveIn(moving: string, folder: string): Promise<void> {
  const names = (await readdir(moving)).sort((a, b) => moveRank(a) - moveRank(b));
  for (const name of names) {
    if (name === CONFIG_NAME) await flushPath(folder);
    await replaceEntry(join(moving, name), join(folder, name));
  }
  await rm(moving, { recursive: true, force: true });
  await flushPath(folder);
}

function moveRank(name: string): number {
  if (name === CONFIG_NAME) return 2;
  return isIndexFile(name) ? 1 : 0;
}

/** Renames; a folder of companions replaces the older one, which a rename alone refuses. */
async function replaceEntry(from: string, to: string): Promise<void> {
  try {
    await rename(from, to);
  } catch (error) {
    if (errnoOf(error) !== 'ENOTEMPTY' && errnoOf(error) !== 'EEXIST') throw error;
    await rm(to, { recursive: true });
    await rename(from, to);
  }
}
