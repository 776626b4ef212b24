/**
 * @file A model's shapes from its config.json alone: what planning needs, before any weight is here.
 */
import { stat } from 'node:fs/promises';
import { join, resolve } from 'node:path';

import { modelFromConfig, type ModelDefinition } from '../model/model-from-config.js';
import { readConfigJson } from './hugging-face-folder.js';
import type { LoadOptions } from './load-pretrained.js';
import { silentLogger } from '../../core/logger.js';
import { CONFIG_NAME } from './save-model.js';

/**
 * The model that a config.json describes.
 *
 * @param path the file, or the folder that holds it
 * @throws MODEL_NOT_FOUND, MODEL_CONFIG_INVALID, MODEL_UNSUPPORTED, IO_ERROR
 */
export async function readModelDefinition(
  path: string,
  { strictConfig = false, logger = silentLogger }: LoadOptions = {},
): Promise<ModelDefinition> {
  const named = resolve(path);
  const isFolder = await stat(named).then(
    (found) => found.isDirectory(),
    () => false, // Reading it says what is wrong.
  );
  const config = await readConfigJson(isFolder ? join(named, CONFIG_NAME) : named);
  return modelFromConfig(config, { strict: strictConfig, logger });
}
