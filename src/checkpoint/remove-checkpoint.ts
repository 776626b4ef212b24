/**
 * @file Removes a checkpoint whose time has passed (`save_total_limit`).
 */
import { resolve } from 'node:path';

import { writeError } from './file-errors.js';
import { removeFolder } from './replace-folder.js';

/**
 * Removes the folder; a crash meanwhile leaves it whole or gone from its name, never in part.
 *
 * @throws PATH_UNWRITABLE (also when it is not there), IO_ERROR
 */
export async function removeCheckpoint(folder: string): Promise<void> {
  const path = resolve(folder);
  try {
    await removeFolder(path);
  } catch (error) {
    throw writeError(path, error);
  }
}
