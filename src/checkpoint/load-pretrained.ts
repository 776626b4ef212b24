/**
 * @file A model from a folder in Hugging Face format: its blocks, and where its weights lie.
 *
 * Opens and checks everything at once (config.json, every weight header, every name and shape);
 * reads no weight until the engine asks for it.
 */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';

import { assert } from '../../core/errors.js';
import { silentLogger, type Logger } from '../../core/logger.js';
import type { Model, ParamSpec, TensorSource } from '../model/block.js';
import { modelFromConfig, type ModelName } from '../model/model-from-config.js';
import { copyCompanions } from './companions.js';
import { HuggingFaceFolder } from './hugging-face-folder.js';
import type { JsonObject } from './json-object.js';
import { matchParameters } from './match-parameters.js';
import { CONFIG_NAME } from './save-model.js';

/** A built-in model with weights. */
export interface PretrainedModel extends Model {
  readonly name: ModelName;
  readonly vocabSize: number;
  /** Longest sequence in tokens: a limit for gpt2, the trained length for the others. */
  readonly maxPositions: number;
  /** Lengths in tokens beyond which some layer refuses sequences, ascending. */
  readonly sequenceLimits: readonly number[];
  /** Absolute path of the folder. */
  readonly folder: string;
  /** config.json as it was read. */
  readonly config: JsonObject;
  /** The first `eos_token_id` of config.json, where it has one. */
  readonly eosTokenId?: number;
  writeCompanions(folder: string): Promise<void>;
}

/** How to load. */
export interface LoadOptions {
  /** Refuse configuration fields that would be ignored with a warning. Default false. */
  readonly strictConfig?: boolean;
  /** Where warnings go. Default: nowhere. */
  readonly logger?: Logger;
}

/**
 * Opens the model in `folder`; close it with `close()` when the engine no longer reads from it.
 *
 * @throws MODEL_NOT_FOUND, MODEL_CONFIG_INVALID, MODEL_UNSUPPORTED, CHECKPOINT_CORRUPT,
 *   CHECKPOINT_MISMATCH, IO_ERROR; no file stays open then
 */
export async function loadPretrained(
  folder: string,
  options: LoadOptions = {},
): Promise<PretrainedModel> {
  const logger = options.logger ?? silentLogger;
  const opened = await HuggingFaceFolder.open(folder);
  const strict = options.strictConfig ?? false;
  const definition = modelFromConfig(opened.config, { strict, logger });
  const specs = definition.blocks.flatMap((block) => block.owns);
  const stored = matchParameters(specs, opened.tensors, opened.path, definition);
  const eosTokenId = firstTokenId(opened.config['eos_token_id']);
  return {
    name: definition.name,
    blocks: definition.blocks,
    vocabSize: definition.vocabSize,
    maxPositions: definition.maxPositions,
    sequenceLimits: definition.sequenceLimits,
    folder: opened.path,
    config: opened.config,
    ...(eosTokenId === undefined ? {} : { eosTokenId }),
    source: (spec: ParamSpec): TensorSource => {
      const tensor = stored.get(spec.name);
      assert(tensor !== undefined, 'the parameter belongs to the model', { name: spec.name });
      const { file, entry } = tensor;
      const read: TensorSource['read'] = (offset, target) =>
        file.readElements(entry, offset, target);
      return { name: spec.name, shape: spec.shape, read };
    },
    writeCompanions: async (target) => {
      const copied = opened.companions.filter((name) => name !== CONFIG_NAME);
      await copyCompanions(opened.path, copied, target, logger);
      // From memory: without its config the saved model would be lost, whatever became of ours.
      await writeFile(
        join(target, CONFIG_NAME),
        `${JSON.stringify(opened.config, undefined, 2)}\n`,
      );
    },
    close: () => opened.close(),
  };
}

function firstTokenId(value: unknown): number | undefined {
  const first: unknown = Array.isArray(value) ? value[0] : value;
  return typeof first === 'number' ? first : undefined;
}
