/**
 * @file From a parsed config.json to a chain of blocks, its sizes and the names in its files.
 */
import { SpillwayError } from '../../core/errors.js';
import type { Block, ParamName } from './block.js';
import { shown, type ConfigOptions, type JsonObject } from './config-rules.js';
import { buildGpt2 } from './gpt2.js';
import { parseGpt2Config } from './gpt2-config.js';
import { buildLlama } from './llama.js';
import { parseLlamaConfig } from './llama-config.js';
import { LLAMA_FAMILIES, type LlamaFamilyName } from './llama-families.js';

/** `model_type` of a built-in model. */
export type ModelName = 'gpt2' | LlamaFamilyName;

/** A built-in model, without weights. */
export interface ModelDefinition {
  readonly name: ModelName;
  readonly blocks: readonly Block[];
  readonly vocabSize: number;
  /** Longest sequence: a limit for gpt2, the trained length for the others. */
  readonly maxPositions: number;
  /** Lengths in tokens beyond which some layer refuses sequences, ascending. */
  readonly sequenceLimits: readonly number[];
  /** Whether the head shares the token table. */
  readonly tied: boolean;
  /** Names under which a file may hold the parameter, best first: `save_pretrained`'s, then that of
   * a file without the base model's prefix (the hub's gpt2, saved base models). */
  fileNames(param: ParamName): readonly string[];
  /** Whether a tensor of that name is known to be no parameter: an attention mask, rotary
   * tables, the second name of a tied head. */
  isNonParameter(fileName: string): boolean;
}

type Built = Pick<
  ModelDefinition,
  'blocks' | 'vocabSize' | 'maxPositions' | 'sequenceLimits' | 'tied'
>;

interface ModelType {
  /** Of the base model's parameters. */
  readonly prefix: string;
  readonly tokenParam: ParamName;
  readonly nonParameters: RegExp;
  build(config: JsonObject, options: ConfigOptions): Built;
}

const HEAD_NAME = 'lm_head.weight';

const GPT2: ModelType = {
  prefix: 'transformer.',
  tokenParam: 'transformer.wte.weight',
  nonParameters: /^(transformer\.)?h\.\d+\.attn\.(bias|masked_bias)$/,
  build: (json, options) => {
    const config = parseGpt2Config(json, options);
    const { vocabSize, positions, tied } = config;
    const sequenceLimits = [positions];
    return { blocks: buildGpt2(config), vocabSize, maxPositions: positions, sequenceLimits, tied };
  },
};

function llamaType(name: LlamaFamilyName): ModelType {
  return {
    prefix: 'model.',
    tokenParam: 'model.embed_tokens.weight',
    nonParameters:
      /^(model\.)?(layers\.\d+\.self_attn\.)?rotary_emb\.(inv_freq|original_inv_freq|cos_cached|sin_cached)$/,
    build: (json, options) => {
      const config = parseLlamaConfig(name, json, options);
      const { vocabSize, positions, tied } = config;
      const lengths = new Set(config.limits.flat().map((limit) => limit.length));
      const sequenceLimits = [...lengths].sort((a, b) => a - b);
      return {
        blocks: buildLlama(config),
        vocabSize,
        maxPositions: positions,
        sequenceLimits,
        tied,
      };
    },
  };
}

const MODEL_TYPES = new Map<unknown, readonly [ModelName, ModelType]>([['gpt2', ['gpt2', GPT2]]]);
for (const name of Object.keys(LLAMA_FAMILIES) as LlamaFamilyName[]) {
  MODEL_TYPES.set(name, [name, llamaType(name)]);
}

/**
 * The model that `config`, a parsed config.json, describes.
 *
 * @throws MODEL_CONFIG_INVALID naming a missing or invalid field; MODEL_UNSUPPORTED naming a model
 *   type or a field that we do not compute
 */
export function modelFromConfig(config: unknown, options: ConfigOptions): ModelDefinition {
  if (typeof config !== 'object' || config === null || Array.isArray(config)) {
    throw new SpillwayError(
      'MODEL_CONFIG_INVALID',
      'config.json is not a JSON object; compare with a config of transformers',
    );
  }
  const json = config as JsonObject;
  const modelType = json['model_type'];
  const known = MODEL_TYPES.get(modelType);
  if (known === undefined) {
    throw new SpillwayError(
      modelType === undefined ? 'MODEL_CONFIG_INVALID' : 'MODEL_UNSUPPORTED',
      `config.json: model_type is ${modelType === undefined ? 'missing' : shown(modelType)}; supported are ${[...MODEL_TYPES.keys()].join(', ')}`,
      { field: 'model_type' },
    );
  }
  const [name, type] = known;
  const built = type.build(json, options);
  checkTensorSizes(built.blocks);
  return {
    name,
    ...built,
    fileNames: (param) => {
      const names = [param];
      if (param.startsWith(type.prefix)) names.push(param.slice(type.prefix.length));
      if (built.tied && param === type.tokenParam) names.push(HEAD_NAME);
      return names;
    },
    isNonParameter: (fileName) =>
      type.nonParameters.test(fileName) || (built.tied && fileName === HEAD_NAME),
  };
}

/** Elements of the largest tensor: its bytes and bits are exact numbers. */
const MAX_ELEMENTS = 2 ** 46;

function checkTensorSizes(blocks: readonly Block[]): void {
  for (const { name, shape } of blocks.flatMap((block) => block.owns)) {
    const elements = shape.reduce((product, size) => product * size, 1);
    if (elements <= MAX_ELEMENTS) continue;
    throw new SpillwayError(
      'MODEL_CONFIG_INVALID',
      `config.json gives ${name} more elements than a tensor can have; correct the sizes`,
      { elements, largest: MAX_ELEMENTS },
    );
  }
}
