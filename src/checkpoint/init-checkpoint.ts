/**
 * @file A random checkpoint from a config.json: seeded weights and a byte-level tokenizer.
 *
 * Weights are drawn as transformers initialises them (each ParamSpec says how) and streamed to the
 * file, so that a model of any size takes a few MiB of memory. The folder appears whole or not at
 * all.
 */
import { readdir, writeFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';

import { errnoOf } from '../../core/errno.js';
import { SpillwayError } from '../../core/errors.js';
import { silentLogger, type Logger } from '../../core/logger.js';
import type { ComputeDtype } from '../../core/types.js';
import { kernels } from '../../tiers/native/binding.js';
import type { ParamSpec, TensorSource } from '../model/block.js';
import { modelFromConfig, type ModelDefinition } from '../model/model-from-config.js';
import { seededSource } from '../model/seeded-source.js';
import {
  BYTE_VOCABULARY_SIZE,
  END_OF_TEXT_ID,
  byteLevelTokenizer,
  byteLevelTokenizerConfig,
} from './byte-level-tokenizer.js';
import { writeError } from './file-errors.js';
import { readConfigJson } from './hugging-face-folder.js';
import type { JsonObject } from './json-object.js';
import { saveModelFolder } from './save-model.js';
import type { TensorToWrite } from './safetensors-writer.js';

/** What to make. */
export interface InitRequest {
  /** Path of a config.json. */
  readonly configPath: string;
  /** Folder to make; must not exist, or be empty. */
  readonly outputFolder: string;
  /** Equal seeds give equal files. */
  readonly seed: number;
  /** Dtype of the file. Default float32. */
  readonly dtype?: ComputeDtype;
  /** Refuse configuration fields that would be ignored with a warning. Default false. */
  readonly strictConfig?: boolean;
  readonly logger?: Logger;
}

/** What was made. */
export interface InitResult {
  /** Absolute path. */
  readonly folder: string;
  readonly parameterCount: number;
}

/**
 * Makes the checkpoint. config.json is copied, except that its dtype and its end-of-text ids
 * become those of the files beside it.
 *
 * @throws MODEL_NOT_FOUND, MODEL_CONFIG_INVALID (also for a vocabulary smaller than the
 *   tokenizer's), MODEL_UNSUPPORTED, PATH_UNWRITABLE, OUTPUT_FULL, IO_ERROR; nothing is left then
 */
export async function initCheckpoint(request: InitRequest): Promise<InitResult> {
  const logger = request.logger ?? silentLogger;
  const folder = resolve(request.outputFolder);
  const config = await readConfigJson(resolve(request.configPath));
  const strict = request.strictConfig ?? false;
  const definition = modelFromConfig(config, { strict, logger });
  if (definition.vocabSize < BYTE_VOCABULARY_SIZE) {
    throw new SpillwayError(
      'MODEL_CONFIG_INVALID',
      `vocab_size of ${request.configPath} is too small for the byte-level tokenizer; raise it`,
      { vocabSize: definition.vocabSize, smallest: BYTE_VOCABULARY_SIZE },
    );
  }
  await refuseOccupied(folder);
  const specs = definition.blocks.flatMap((block) => block.owns);
  const params = tensorsToWrite(specs, request.seed, request.dtype ?? 'float32');
  await saveModelFolder({
    folder,
    mode: 'replace',
    params,
    writeCompanions: (target) => writeCompanions(target, config, definition),
  });
  const parameterCount = specs.reduce(
    (sum, { shape }) => sum + shape.reduce((product, size) => product * size, 1),
    0,
  );
  return { folder, parameterCount };
}

async function refuseOccupied(folder: string): Promise<void> {
  const names = await readdir(folder).catch((error: unknown) => {
    if (errnoOf(error) === 'ENOENT') return [];
    throw writeError(folder, error);
  });
  if (names.length === 0) return;
  throw new SpillwayError(
    'PATH_UNWRITABLE',
    `${folder} is not empty; name a new folder, nothing is overwritten`,
  );
}

function tensorsToWrite(
  specs: readonly ParamSpec[],
  seed: number,
  dtype: ComputeDtype,
): TensorToWrite[] {
  let staging = new Float32Array(0);
  return specs.map((spec) => {
    const { name, shape } = spec;
    const source: TensorSource = seededSource(spec, seed);
    if (dtype === 'float32') {
      return { name, shape, dtype: 'F32', read: (offset, target) => source.read(offset, target) };
    }
    // Tensors are written one after another, so that they share one staging buffer.
    const read = async (offset: number, target: Uint16Array): Promise<void> => {
      if (staging.length < target.length) staging = new Float32Array(target.length);
      const values = staging.subarray(0, target.length);
      await source.read(offset, values);
      kernels().f32ToBf16(values, target);
    };
    return { name, shape, dtype: 'BF16', read };
  });
}

async function writeCompanions(
  folder: string,
  config: JsonObject,
  definition: ModelDefinition,
): Promise<void> {
  const ids = { bos_token_id: END_OF_TEXT_ID, eos_token_id: END_OF_TEXT_ID };
  const files: Readonly<Record<string, object>> = {
    'config.json': { ...config, ...ids },
    'generation_config.json': { _from_model_config: true, ...ids },
    'tokenizer.json': byteLevelTokenizer(),
    'tokenizer_config.json': byteLevelTokenizerConfig(definition.maxPositions),
  };
  for (const [name, content] of Object.entries(files)) {
    await writeFile(join(folder, name), `${JSON.stringify(content, undefined, 2)}\n`);
  }
}
