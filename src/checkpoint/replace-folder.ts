/**
 * @file Puts a complete folder in the place of an older one of its name.
 *
 * The older folder steps aside as `.old-<name>` for the rename. A crash in between leaves no folder
 * under the name, and whoever comes next brings the older one back. So `.old-<name>` is always whole:
 * what is removed gets the name `.tmp-<name>` first, which everyone may clear.
 */
import { rename, rm } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';

import { flushPath, temporaryPath } from './durable-file.js';
import { exists } from './file-errors.js';

/** Renames `staging` to `folder`, beside it on the same file system. @throws system errors */
export async function replaceFolder(staging: string, folder: string): Promise<void> {
  const aside = asidePath(folder);
  const replaced = await exists(folder);
  if (replaced) await rename(folder, aside);
  try {
    await rename(staging, folder);
  } catch (error) {
    if (replaced) await rename(aside, folder);
    throw error;
  }
  await flushPath(dirname(folder));
  if (replaced) await removeWhole(aside, temporaryPath(folder));
}

/** Puts back, or removes, the older folder of a replacement that was killed. @throws system errors */
export async function recoverReplaced(folder: string): Promise<void> {
  const aside = asidePath(folder);
  if (!(await exists(aside))) return;
  if (await exists(folder)) await removeWhole(aside, temporaryPath(folder));
  else await rename(aside, folder);
}

/** Removes `folder` and what stands aside for it; a crash leaves each whole or gone. */
export async function removeFolder(folder: string): Promise<void> {
  const [aside, temporary] = [asidePath(folder), temporaryPath(folder)];
  if (await exists(aside)) await removeWhole(aside, temporary);
  await removeWhole(folder, temporary);
}

async function removeWhole(folder: string, temporary: string): Promise<void> {
  await rm(temporary, { recursive: true, force: true });
  await rename(folder, temporary);
  await flushPath(dirname(folder));
  await rm(temporary, { recursive: true, force: true });
}

/** Where an older folder waits while the new one is renamed into place. */
function asidePath(folder: string): string {
  return join(dirname(folder), `.old-${basename(folder)}`);
}
