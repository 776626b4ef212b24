/**
 * @file The tensors of a folder by name: of one safetensors file, or of the shards of an index.
 *
 * All headers are checked when the folder is opened; data are read on demand. Owns the descriptors
 * of its files until `close()`.
 */
import { readdir } from 'node:fs/promises';
import { basename, join } from 'node:path';

import { SpillwayError } from '../../core/errors.js';
import { corrupt, quoteName, readError } from './file-errors.js';
import { isJsonObject } from './json-object.js';
import { readJsonFile } from './read-json-file.js';
import type { TensorEntry } from './safetensors-header.js';
import { SafetensorsFile } from './safetensors-reader.js';
import { indexFileName, singleFileName, type TensorStem } from './tensor-file-names.js';

/** Weights in formats that run code or belong to other frameworks; refused by name. */
const OTHER_WEIGHTS = /\.(bin|pt|pth|ckpt|h5|msgpack|gguf)$/;

/** Largest index; that of a model with 160 shards and 91,000 tensors has 9 MB. */
const MAX_INDEX_BYTES = 64 * 2 ** 20;

/** A tensor and the file that holds it. */
export interface StoredTensor {
  readonly file: SafetensorsFile;
  readonly entry: TensorEntry;
}

/** Open files of tensors. */
export interface TensorFiles {
  /** Every tensor by its name in the files. */
  readonly tensors: ReadonlyMap<string, StoredTensor>;
  /** Closes the files. Idempotent. */
  close(): Promise<void>;
}

/**
 * Opens `<stem>.safetensors` of `folder`, or the shards of `<stem>.safetensors.index.json`.
 *
 * @throws MODEL_NOT_FOUND when the folder has neither, CHECKPOINT_CORRUPT, IO_ERROR; no file stays
 *   open then
 */
export async function openTensorFiles(folder: string, stem: TensorStem): Promise<TensorFiles> {
  const names = await readdir(folder).catch((error: unknown) => {
    throw readError(folder, error);
  });
  const files = await openFiles(folder, names, stem);
  return {
    tensors: files.tensors,
    close: async () => {
      await Promise.all(files.files.map((file) => file.close()));
    },
  };
}

interface OpenFiles {
  readonly files: readonly SafetensorsFile[];
  readonly tensors: ReadonlyMap<string, StoredTensor>;
}

async function openFiles(
  folder: string,
  names: readonly string[],
  stem: TensorStem,
): Promise<OpenFiles> {
  const [single, index] = [singleFileName(stem), indexFileName(stem)];
  if (names.includes(single)) {
    const file = await SafetensorsFile.open(join(folder, single));
    return { files: [file], tensors: collectTensors([file]) };
  }
  if (names.includes(index)) return openShards(folder, names, index);
  const others = stem === 'model' ? names.filter((name) => OTHER_WEIGHTS.test(name)).sort() : [];
  const what = stem === 'model' ? 'weights' : 'optimizer states';
  throw new SpillwayError(
    'MODEL_NOT_FOUND',
    others.length > 0
      ? `${folder} holds weights in another format only; convert them to safetensors (transformers: save_pretrained)`
      : `${folder} holds no ${what}; it needs ${single} or ${index}`,
    { lookedFor: [single, index], found: others.slice(0, 8) },
  );
}

async function openShards(
  folder: string,
  names: readonly string[],
  indexName: string,
): Promise<OpenFiles> {
  const indexPath = join(folder, indexName);
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

/**
 * `weight_map` of an index: tensor name to file name, each a plain name within the folder.
 *
 * @throws CHECKPOINT_CORRUPT
 */
async function readWeightMap(indexPath: string): Promise<Map<string, string>> {
  const index = await readJsonFile(indexPath, MAX_INDEX_BYTES, (fact, cause) =>
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
