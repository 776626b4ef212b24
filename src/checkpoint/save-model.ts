/**
 * @file Saves a model as a Hugging Face folder, whole or not at all.
 *
 * Everything is first written and flushed in a temporary folder beside its destination. Then:
 *
 * - `replace`: the folder is renamed into place (`checkpoint-<step>`), where an older one of that name
 *   makes way as replace-folder.ts says.
 * - `into`: the files are moved into an existing folder (`output_dir`, which holds metrics and
 *   checkpoints too) and replace the model there as publish-files.ts says.
 *
 * A failed save removes its temporary folder and leaves what was there before.
 */
import { mkdir, readFile, readdir, rm } from 'node:fs/promises';
import { basename, join, resolve } from 'node:path';

import { SpillwayError, assert } from '../../core/errors.js';
import { flushPath, temporaryPath, writeDurableJson } from './durable-file.js';
import { exists, writeError } from './file-errors.js';
import { parseJsonObject, type JsonObject } from './json-object.js';
import { INTO_STAGING_NAME, completePublication, publishInto } from './publish-files.js';
import { recoverReplaced, replaceFolder } from './replace-folder.js';
import type { TensorToWrite } from './safetensors-writer.js';
import { writeTensorFiles } from './write-tensor-files.js';

/** Name of a saved folder's configuration. */
export const CONFIG_NAME = 'config.json';

/** Words of config.json for the dtypes that weights are written in. */
const CONFIG_DTYPES = { F32: 'float32', F16: 'float16', BF16: 'bfloat16' } as const;

/** What to save and where. */
export interface SaveModelRequest {
  /** Destination; its parents are created. */
  readonly folder: string;
  /** `replace`: the folder becomes exactly this save. `into`: the files join what is there. */
  readonly mode: 'replace' | 'into';
  /** Weights under the names that transformers loads; all of one dtype, F32, BF16 or F16. */
  readonly params: readonly TensorToWrite[];
  /** Optimizer states: `<parameter>.exp_avg`, `.exp_avg_sq`, `.master_lo`. */
  readonly optimizer?: readonly TensorToWrite[];
  /** Bytes of data per file of weights or states; beyond that there are several. Default: no limit. */
  readonly maxShardBytes?: number;
  /** Writes config.json, tokenizer and other files into the (temporary) folder it is given. */
  readonly writeCompanions?: (folder: string) => Promise<void>;
  /** Further JSON files by name, e.g. `trainer_state.json`, `spillway.json`. */
  readonly jsonFiles?: Readonly<Record<string, unknown>>;
}

/**
 * Saves; config.json, where companions bring one, gets the dtype of the weights.
 *
 * @throws OUTPUT_FULL, PATH_UNWRITABLE, IO_ERROR, or what a callback throws; then nothing at
 *   the destination has changed. (In mode `into`, an error among the final renames can leave a
 *   folder that is refused for want of config.json; the next save into it carries on from there.)
 */
export async function saveModelFolder(request: SaveModelRequest): Promise<void> {
  const folder = resolve(request.folder);
  const replace = request.mode === 'replace';
  const staging = replace ? temporaryPath(folder) : join(folder, INTO_STAGING_NAME);
  try {
    await (replace ? recoverReplaced(folder) : completePublication(folder));
    await rm(staging, { recursive: true, force: true });
    await mkdir(staging, { recursive: true });
    await writeFiles(staging, request);
    await flushFiles(staging);
    await (replace ? replaceFolder(staging, folder) : publishInto(folder));
  } catch (error) {
    // The first error is the one to report; a leftover is cleared by the next save.
    await rm(staging, { recursive: true, force: true }).catch(() => undefined);
    throw writeError(folder, error);
  }
}

async function writeFiles(staging: string, request: SaveModelRequest): Promise<void> {
  const maxShardBytes = request.maxShardBytes ?? Infinity;
  await writeTensorFiles(staging, 'model', request.params, maxShardBytes);
  if (request.optimizer !== undefined) {
    await writeTensorFiles(staging, 'optimizer', request.optimizer, maxShardBytes);
  }
  await request.writeCompanions?.(staging);
  await writeConfigDtype(join(staging, CONFIG_NAME), request.params);
  for (const [name, value] of Object.entries(request.jsonFiles ?? {})) {
    assert(name === basename(name), 'a saved JSON file has a plain name', { name });
    await writeDurableJson(join(staging, name), value);
  }
}

/** Sets `dtype` (transformers 5) or `torch_dtype` (4; also where neither stands) of config.json. */
async function writeConfigDtype(path: string, params: readonly TensorToWrite[]): Promise<void> {
  const dtype = params[0]?.dtype;
  if (dtype === undefined || !(await exists(path))) return;
  assert(dtype !== 'U16', 'weights are F32, F16 or BF16');
  assert(
    params.every((param) => param.dtype === dtype),
    'all weights of a folder have one dtype',
  );
  const text = await readFile(path, 'utf8');
  const config = parseJsonObject(text, (fact, cause) => {
    const message = `the ${CONFIG_NAME} to save ${fact}; repair the one in the model folder`;
    return new SpillwayError('MODEL_CONFIG_INVALID', message, {}, cause);
  });
  await writeDurableJson(path, withDtype(config, CONFIG_DTYPES[dtype]));
}

function withDtype(config: JsonObject, dtype: string): JsonObject {
  const hasNew = Object.hasOwn(config, 'dtype');
  const hasOld = Object.hasOwn(config, 'torch_dtype') || !hasNew;
  return {
    ...config,
    ...(hasOld ? { torch_dtype: dtype } : {}),
    ...(hasNew ? { dtype } : {}),
  };
}

async function flushFiles(folder: string): Promise<void> {
  for (const entry of await readdir(folder, { withFileTypes: true, recursive: true })) {
    await flushPath(join(entry.parentPath, entry.name));
  }
  await flushPath(folder);
}
