/**
 * @file The files that belong to a model besides its weights, and their way into a saved folder.
 *
 * What a user of the text model needs: configuration, tokenizer, chat templates. Neither LICENSE nor
 * README, which are about the model that was there before; `save_pretrained` leaves them out too.
 */
import { copyFile, mkdir, readdir, stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';

import { errnoOf } from '../../core/errno.js';
import type { Logger } from '../../core/logger.js';
import { exists, readError } from './file-errors.js';

const COMPANION_NAMES =
  /^(config\.json|generation_config\.json|tokenizer.*\.json|tokenizer\.model|tekken\.json|added_tokens\.json|special_tokens_map\.json|vocab\.json|merges\.txt|chat_template\.(jinja|json))$/;

/** Chat templates besides the default one, `<name>.jinja` each (transformers' CHAT_TEMPLATE_DIR). */
const TEMPLATE_FOLDER = 'additional_chat_templates';

/**
 * Companions in `folder`, config.json included: paths from there, sorted. Links to files count.
 *
 * @throws MODEL_NOT_FOUND, IO_ERROR
 */
export async function listCompanions(folder: string): Promise<string[]> {
  try {
    const names = (await readdir(folder)).filter((name) => COMPANION_NAMES.test(name));
    const templates = (await readdirIfFolder(join(folder, TEMPLATE_FOLDER)))
      .filter((name) => name.endsWith('.jinja'))
      .map((name) => `${TEMPLATE_FOLDER}/${name}`);
    const found: string[] = [];
    for (const name of [...names, ...templates].sort()) {
      if (await isFile(join(folder, name))) found.push(name);
    }
    return found;
  } catch (error) {
    throw readError(folder, error);
  }
}

/**
 * Copies files of a model's folder, byte for byte.
 *
 * A file that has gone since the model was loaded is left out with a warning: hours of training
 * are not lost for a tokenizer file.
 *
 * @throws system errors
 */
export async function copyCompanions(
  source: string,
  names: readonly string[],
  target: string,
  logger: Logger,
): Promise<void> {
  for (const name of names) {
    try {
      // Not recursive: a target that has gone is not to be made again.
      if (name.includes('/')) await makeFolder(dirname(join(target, name)));
      await copyFile(join(source, name), join(target, name));
    } catch (error) {
      if (errnoOf(error) !== 'ENOENT' || !(await exists(target))) throw error;
      logger.warn(`${join(source, name)} has gone; the saved model lacks it`);
    }
  }
}

async function makeFolder(path: string): Promise<void> {
  await mkdir(path).catch((error: unknown) => {
    if (errnoOf(error) !== 'EEXIST') throw error;
  });
}

async function readdirIfFolder(path: string): Promise<string[]> {
  return readdir(path).catch((error: unknown) => {
    if (errnoOf(error) === 'ENOENT' || errnoOf(error) === 'ENOTDIR') return [];
    throw error;
  });
}

async function isFile(path: string): Promise<boolean> {
  return stat(path).then(
    (found) => found.isFile(),
    () => false,
  );
}
