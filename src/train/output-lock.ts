/**
 * @file One run at a time per `output_dir`.
 *
 * A run repairs what a killed one left half done and removes old checkpoints; to a run that is alive
 * both would be harm. The folder itself is locked (`flock`), so that nothing is written into it; where
 * the addon is absent a lock file lies in it while the run lasts.
 */
import { closeSync, constants, openSync } from 'node:fs';
import { join } from 'node:path';
import { hasCode } from '../../core/errors.js';
import type { Logger } from '../../core/logger.js';
import { native } from '../../tiers/native/binding.js';
import { lockByFile, lockFile, type FileLock } from '../../tiers/nvme/file-lock.js';

const LOCK_NAME = '.run';

/**
 * Locks `folder`; undefined when it does not exist, or when its disk cannot lock, which is a warning.
 *
 * @throws STORE_LOCKED when another run has it
 */
export function lockOutput(folder: string, logger: Logger): FileLock | undefined {
  let fd: number;
  try {
    fd = openSync(folder, constants.O_RDONLY | constants.O_DIRECTORY);
  } catch {
    return undefined; // Not there, or no folder to be read: whoever writes into it says so.
  }
  let held = false;
  const release = (): void => {
    if (held) closeSync(fd);
    held = false;
  };
  try {
    const lock =
      native() === undefined ? lockByFile(join(folder, LOCK_NAME)) : lockFile(folder, fd);
    held = true;
    return {
      release: () => {
        lock.release();
        release();
      },
    };
  } catch (error) {
    if (hasCode(error, 'STORE_LOCKED')) throw error;
    if (!hasCode(error, 'PATH_UNWRITABLE')) {
      logger.warn(`"${folder}" cannot be locked; start no other run there meanwhile`);
    }
    return undefined;
  } finally {
    if (!held) closeSync(fd);
  }
}
