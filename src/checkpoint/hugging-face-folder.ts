/**
 * @file A model folder in Hugging Face format: config.json, safetensors weights, companions.
 *
 * Weights are `model.safetensors`, or the shards that `model.safetensors.index.json` lists. All
 * headers are checked when the folder is opened; data are read on demand. Owns the descriptors of
 * its weight files until `close()`.
 */
import { readFile, readdir } from 'node:fs/promises';
import { basename, join, resolve } from 'node:path';

import { SpillwayError } from '../../core/errors.js';
import { corrupt, errnoOf, quoteName, readError } from './file-errors.js';
import { isJsonObject, parseJsonObject, type JsonObject } from './json-object.js';
import type { TensorEntry } from './safetensors-header.js';
import { SafetensorsFile } from './safetensors-reader.js';

const CONFIG_NAME = 'config.json';
const WEIGHTS_NAME = 'model.safetensors';
const INDEX_NAME = 'model.safetensors.index.json';

/** Files that belong to a model besides its weights; copied when it is saved. */
const COMPANION_NAMES =
  /^(config\.json|generation_config\.json|tokenizer.*\.json|tokenizer\.model|added_tokens\.json|special_tokens_map\.json|vocab\.json|merges\.txt|chat_template\..+)$/;

/** Weights in formats that run code or belong to other frameworks; refused by name. */
const OTHER_WEIGHTS = /\.(bin|pt|pth|ckpt|h5|msgpack|gguf)$/;

/** A tensor and the file that holds it. */
export interface StoredTensor {
  readonly file: SafetensorsFile;
  readonly entry: TensorEntry;
}

/** An open model folder. */
export class HuggingFaceFolder {
  /** Absolute path. */
  readonly path: string;
  readonly config: JsonObject;
  /** Every tensor of every weight file by its name there. */
  readonly tensors: ReadonlyMap<string, StoredTensor>;
  /** Names of the files to copy on save, config.json included, sorted. */
  readonly companions: readonly string[];
  readonly #files: readonly SafetensorsFile[];

  private constructor(
    path: string,
    config: JsonObject,
    weights: { files: readonly SafetensorsFile[]; tensors: ReadonlyMap<string, StoredTensor> },
    companions: readonly string[],
  ) {
    this.path = path;
    this.config = config;
    this.tensors = weights.tensors;
    this.companions = companions;
    this.#files = weights.files;
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
        `${path} holds no ${CONFIG_NAME}; name a model folder in Hugging Face format`,
        { lookedFor: [CONFIG_NAME, WEIGHTS_NAME, INDEX_NAME] },
      );
    }
    const config = await readConfigJson(join(path, CONFIG_NAME));
    const weights = await openWeights(path, names);
    const companions = names.filter((name) => COMPANION_NAMES.test(name));
    return new HuggingFaceFolder(path, config, weights, companions);
  }

  /** Closes the weight files. Idempotent. */
  async close(): Promise<void> {
    await Promise.all(this.#files.map((file) => file.close()));
  }
}

/**
 * A config.json as an object.
 *
 * @throws MODEL_NOT_FOUND when it cannot be opened, MODEL_CONFIG_INVALID when it is no JSON object
 */
export async function readConfigJson(path: string): Promise<JsonObject> {
  return readJsonObject(path, (fact, cause) => {
    const message = `${path} ${fact}; write one JSON object as Hugging Face does`;
    return new SpillwayError('MODEL_CONFIG_INVALID', message, {}, cause);
  });
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

async function openWeights(
  folder: string,
  names: readonly string[],
): Promise<{ files: SafetensorsFile[]; tensors: Map<string, StoredTensor> }> {
  if (names.includes(WEIGHTS_NAME)) {
    const file = await SafetensorsFile.open(join(folder, WEIGHTS_NAME));
    return { files: [file], tensors: collectTensors([file]) };
  }
  if (names.includes(INDEX_NAME)) return openShards(folder, names);
  const others = names.filter((name) => OTHER_WEIGHTS.test(name));
  throw new SpillwayError(
    'MODEL_NOT_FOUND',
    others.length > 0
      ? `${folder} holds weights in another format only; convert them to safetensors (transformers: save_pretrained)`
      : `${folder} holds no weights; it needs ${WEIGHTS_NAME} or ${INDEX_NAME}`,
    { lookedFor: [WEIGHTS_NAME, INDEX_NAME], found: others.slice(0, 8) },
  );
}

async function openShards(
  folder: string,
  names: readonly string[],
): Promise<{ files: SafetensorsFile[]; tensors: Map<string, StoredTensor> }> {
  const indexPath = join(folder, INDEX_NAME);
  const weightMap = await readWeightMap(indexPath);
  const files: SafetensorsFile[] = [];
  for (const shard of [...new Set(weightMap.values())].sort()) {
    if (!names.includes(shard)) {
      throw corrupt(indexPath, `the index names the file ${quoteName(shard)}, which is not there`);
    }
    files.push(await SafetensorsFile.open(join(folder, shard)));
  }
  const tensors = collectTensors(files);
  for (const [name, shard] of weightMap) {
    const stored = tensors.get(name);
    if (stored === undefined || basename(stored.file.path) !== shard) {
      throw corrupt(indexPath, `tensor ${quoteName(name)} is not in its file ${quoteName(shard)}`);
    }
  }
  return { files, tensors };
}

/** `weight_map` of an index: tensor name to file name, each a plain name within the folder. */
async function readWeightMap(indexPath: string): Promise<Map<string, string>> {
  const index = await readJsonObject(indexPath, (fact, cause) =>
    corrupt(indexPath, `the file ${fact}`, {}, cause),
  );
  const map = index['weight_map'];
  if (!isJsonObject(map) || Object.keys(map).length === 0) {
    throw corrupt(indexPath, 'the index has no weight_map with tensors');
  }
  return new Map(
    Object.entries(map).map(([name, shard]) => {
      if (typeof shard !== 'string' || !isPlainShardName(shard)) {
        const shown = typeof shard === 'string' ? quoteName(shard) : `a ${typeof shard}`;
        throw corrupt(
          indexPath,
          `tensor ${quoteName(name)} is mapped to ${shown}, not to a .safetensors file of the folder`,
        );
      }
      return [name, shard];
    }),
  );
}

/** Whether `shard` stays in its folder: shard names come from strangers. */
function isPlainShardName(shard: string): boolean {
  return /^[^/\\\0]+\.safetensors$/.test(shard) && shard === basename(shard);
}

function collectTensors(files: readonly SafetensorsFile[]): Map<string, StoredTensor> {
  const tensors = new Map<string, StoredTensor>();
  for (const file of files) {
    for (const entry of file.entries) {
      const other = tensors.get(entry.name);
      if (other !== undefined) {
        throw corrupt(
          file.path,
          `tensor ${quoteName(entry.name)} is in ${basename(other.file.path)} as well`,
        );
      }
      tensors.set(entry.name, { file, entry });
    }
  }
  return tensors;
}

async function readJsonObject(
  path: string,
  refuse: (fact: string, cause?: unknown) => Error,
): Promise<JsonObject> {
  const text = await readFile(path, 'utf8').catch((error: unknown) => {
    throw readError(path, error);
  });
  return parseJsonObject(text, refuse);
}
