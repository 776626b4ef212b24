/**
 * @file Makes sure that a run can write its results before it begins.
 */
import { access, constants, mkdir } from 'node:fs/promises';
import { writeError } from '../checkpoint/file-errors.js';

/** Creates the folder and makes sure that files can be written there. @throws PATH_UNWRITABLE */
export async function prepareOutput(folder: string): Promise<void> {
  try {
    await mkdir(folder, { recursive: true });
    await access(folder, constants.W_OK | constants.X_OK);
  } catch (error) {
    throw writeError(folder, error);
  }
}
