/**
 * @file A model folder in Hugging Face format: config.json, safetensors weights, companions.
 *
 * Weights are `model.safetensors`, or the shards that `model.safetensors.index.json` lists. All
 * headers are checked when the folder is opened; data are read on demand. Owns the descriptors of
 * its weight files until `close()`.
 */
import { readdir } from 'node:fs/promises';
import { join, resolve } from 'node:path';

import { errnoOf } from '../../core/errno.js';
import { SpillwayError } from '../../core/errors.js';
import { readError } from './file-errors.js';
import { listCompanions } from './companions.js';
import type { JsonObject } from './json-object.js';
import { findInterruptedSave } from './publish-files.js';
import { readJsonFile } from './read-json-file.js';
import { indexFileName, singleFileName } from './tensor-file-names.js';
import { openTensorFiles, type StoredTensor, type TensorFiles } from './tensor-files.js';

const CONFIG_NAME = 'config.json';
const WEIGHTS_NAME = singleFileName('model');
const INDEX_NAME = indexFileName('model');

/** Largest config.json; one with the names of 100,000 labels has 5 MiB. */
const MAX_CONFIG_BYTES = 16 * 2 ** 20;

/** An open model folder. */
export class HuggingFaceFolder {
  /** Absolute path. */
  readonly path: string;
  readonly config: JsonObject;
  /** Files to copy on save, config.json included: paths from the folder, sorted. */
  readonly companions: readonly string[];
  readonly #weights: TensorFiles;

  private constructor(
    path: string,
    config: JsonObject,
    weights: TensorFiles,
    companions: readonly string[],
  ) {
    this.path = path;
    this.config = config;
    this.companions = companions;
    this.#weights = weights;
  }

  /** Every tensor of every weight file by its name there. */
  get tensors(): ReadonlyMap<string, StoredTensor> {
    return this.#weights.tensors;
  }

  /**
   * Opens the folder at `folder` and checks config.json and all weight headers.
   *
   * @throws MODEL_NOT_FOUND, MODEL_CONFIG_INVALID, CHECKPOINT_CORRUPT, IO_ERROR
   */
  static async open(folder: string): Promise<HuggingFaceFolder> {
    const path = resolve(folder);
    const names = await listFolder(path);
    if (!names.includes(CONFIG_NAME)) {
      throw new SpillwayError(
        'MODEL_NOT_FOUND',
        `${path} holds no ${CONFIG_NAME}; ${await remedyFor(path)}`,
        { lookedFor: [CONFIG_NAME, WEIGHTS_NAME, INDEX_NAME] },
      );
    }
    const config = await readConfigJson(join(path, CONFIG_NAME));
    const companions = await listCompanions(path);
    const weights = await openTensorFiles(path, 'model');
    return new HuggingFaceFolder(path, config, weights, companions);
  }

  /** Closes the weight files. Idempotent. */
  async close(): Promise<void> {
    await this.#weights.close();
  }
}

/**
 * A config.json as an object.
 *
 * @throws MODEL_NOT_FOUND when it cannot be opened, MODEL_CONFIG_INVALID when it is no JSON object
 */
export async function readConfigJson(path: string): Promise<JsonObject> {
  return readJsonFile(path, MAX_CONFIG_BYTES, (fact, cause) => {
    const message = `${path} ${fact}; write one JSON object as Hugging Face does`;
    return new SpillwayError('MODEL_CONFIG_INVALID', message, {}, cause);
  });
}

async function remedyFor(path: string): Promise<string> {
  const interrupted = await findInterruptedSave(path);
  if (interrupted === undefined) return 'name a model folder in Hugging Face format';
  return `a save was interrupted: move what is in ${interrupted} there, ${CONFIG_NAME} last`;
}

async function listFolder(path: string): Promise<string[]> {
  try {
    return (await readdir(path)).sort();
  } catch (error) {
    const errno = errnoOf(error);
    if (errno !== 'ENOENT' && errno !== 'ENOTDIR') throw readError(path, error);
    throw new SpillwayError(
      'MODEL_NOT_FOUND',
      `${path} is no folder; name a model folder in Hugging Face format (models are not downloaded)`,
      { lookedFor: [CONFIG_NAME, WEIGHTS_NAME, INDEX_NAME] },
      error,
    );
  }
}
