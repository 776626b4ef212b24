/**
 * @file Saves a model as a Hugging Face folder, whole or not at all.
 *
 * Everything is first written and flushed in a temporary folder beside its destination. Then:
 *
 * - `replace`: the folder is renamed into place (`checkpoint-<step>`). An older folder of that name
 *   steps aside for the rename and is removed after it; a save that was killed in between is
 *   completed by the next one of that name.
 * - `into`: the files are renamed into an existing folder one by one (`output_dir`, which holds
 *   metrics and checkpoints too), weights first, config.json last.
 *
 * A failed save removes its temporary folder and leaves what was there before.
 */
import { access, copyFile, mkdir, readFile, readdir, rename, rm } from 'node:fs/promises';
import { basename, dirname, join, resolve } from 'node:path';

import { SpillwayError, assert } from '../../core/errors.js';
import type { Logger } from '../../core/logger.js';
import { flushPath, temporaryPath, writeDurableJson } from './durable-file.js';
import { errnoOf, writeError } from './file-errors.js';
import { parseJsonObject, type JsonObject } from './json-object.js';
import { writeSafetensors, type TensorToWrite } from './safetensors-writer.js';

/** File names of a saved folder. */
export const SAVED_NAMES = {
  config: 'config.json',
  weights: 'model.safetensors',
  optimizer: 'optimizer.safetensors',
} as const;

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
  /** Writes config.json, tokenizer and other files into the (temporary) folder it is given. */
  readonly writeCompanions?: (folder: string) => Promise<void>;
  /** Further JSON files by name, e.g. `trainer_state.json`, `spillway.json`. */
  readonly jsonFiles?: Readonly<Record<string, unknown>>;
}

/**
 * Saves; config.json, where companions bring one, gets the dtype of the weights.
 *
 * @throws OUTPUT_FULL, PATH_UNWRITABLE, IO_ERROR, or what a callback throws; then nothing at
 *   the destination has changed. (In mode `into`, an error among the final renames can leave some
 *   files new and some old, each of them whole.)
 */
export async function saveModelFolder(request: SaveModelRequest): Promise<void> {
  const folder = resolve(request.folder);
  const staging = request.mode === 'replace' ? temporaryPath(folder) : join(folder, '.tmp-save');
  try {
    if (request.mode === 'replace') await recoverReplaced(folder);
    await rm(staging, { recursive: true, force: true });
    await mkdir(staging, { recursive: true });
    await writeFiles(staging, request);
    await flushFiles(staging);
    await (request.mode === 'replace'
      ? publishFolder(staging, folder)
      : publishFiles(staging, folder));
  } catch (error) {
    // The first error is the one to report; a leftover is cleared by the next save.
    await rm(staging, { recursive: true, force: true }).catch(() => undefined);
    throw writeError(folder, error);
  }
}

/**
 * Copies files of a model's folder, byte for byte.
 *
 * A file that has gone since the model was loaded is left out with a warning: hours of training
 * are not lost for a tokenizer file.
 */
export async function copyCompanions(
  source: string,
  names: readonly string[],
  target: string,
  logger: Logger,
): Promise<void> {
  for (const name of names) {
    try {
      await copyFile(join(source, name), join(target, name));
    } catch (error) {
      if (errnoOf(error) !== 'ENOENT' || !(await exists(target))) throw error;
      logger.warn(`${join(source, name)} has gone; the saved model lacks it`);
    }
  }
}

async function writeFiles(staging: string, request: SaveModelRequest): Promise<void> {
  await writeSafetensors(join(staging, SAVED_NAMES.weights), request.params);
  if (request.optimizer !== undefined) {
    await writeSafetensors(join(staging, SAVED_NAMES.optimizer), request.optimizer);
  }
  await request.writeCompanions?.(staging);
  await writeConfigDtype(join(staging, SAVED_NAMES.config), request.params);
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
    const message = `the ${SAVED_NAMES.config} to save ${fact}; repair the one in the model folder`;
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

/** Where an older folder waits while the new one is renamed into place. */
function asidePath(folder: string): string {
  return join(dirname(folder), `.old-${basename(folder)}`);
}

async function publishFolder(staging: string, folder: string): Promise<void> {
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
  if (replaced) await rm(aside, { recursive: true, force: true });
}

/** Puts back, or removes, the older folder of a save that was killed while publishing. */
async function recoverReplaced(folder: string): Promise<void> {
  const aside = asidePath(folder);
  if (!(await exists(aside))) return;
  if (await exists(folder)) await rm(aside, { recursive: true, force: true });
  else await rename(aside, folder);
}

async function publishFiles(staging: string, folder: string): Promise<void> {
  const names = (await readdir(staging)).sort((a, b) => publishRank(a) - publishRank(b));
  for (const name of names) await rename(join(staging, name), join(folder, name));
  await rm(staging, { recursive: true, force: true });
  await flushPath(folder);
}

/** Weights first, config.json last: who finds a new config.json finds its weights too. */
function publishRank(name: string): number {
  if (name === SAVED_NAMES.config) return 2;
  return name === SAVED_NAMES.weights ? 0 : 1;
}

async function exists(path: string): Promise<boolean> {
  return access(path).then(
    () => true,
    () => false,
  );
}
