/**
 * @file How a sequence is continued: transformers' words, from generation_config.json, overridden by
 * the caller.
 */
import { join } from 'node:path';
import { SpillwayError } from '../../core/errors.js';
import type { Logger } from '../../core/logger.js';
import { isJsonObject, type JsonObject } from '../checkpoint/json-object.js';
import { readJson } from '../data/tokenizer-files.js';

export interface GenerationSettings {
  /** Most tokens to add, at least 1. */
  readonly maxNewTokens: number;
  /** Draw tokens; otherwise the likeliest is taken. */
  readonly doSample: boolean;
  /** Divides the logits before they are drawn from; above 0. */
  readonly temperature: number;
  /** Draw among so many of the likeliest tokens; 0: among all. */
  readonly topK: number;
  /** Draw among the likeliest tokens that together have this probability; above 0, at most 1. */
  readonly topP: number;
  /** Above 1 makes tokens that are already there less likely (Keskar et al. 2019); above 0. */
  readonly repetitionPenalty: number;
  /** Of the draws; a whole number. */
  readonly seed: number;
  /** Tokens that end the sequence. */
  readonly eosTokenIds: readonly number[];
}

/** transformers' defaults; `seed` is ours. */
const DEFAULTS: GenerationSettings = {
  maxNewTokens: 128,
  doSample: false,
  temperature: 1,
  topK: 50,
  topP: 1,
  repetitionPenalty: 1,
  seed: 42,
  eosTokenIds: [],
};

/** What each setting allows. */
const RULES: {
  readonly [K in keyof GenerationSettings]: readonly [
    isValid: (value: GenerationSettings[K]) => boolean,
    wanted: string,
  ];
} = {
  maxNewTokens: [
    (value) => Number.isSafeInteger(value) && value >= 1,
    'a whole number, at least 1',
  ],
  doSample: [(value) => typeof value === 'boolean', 'true or false'],
  temperature: [(value) => Number.isFinite(value) && value > 0, 'a number above 0'],
  topK: [(value) => Number.isSafeInteger(value) && value >= 0, 'a whole number, at least 0'],
  topP: [(value) => value > 0 && value <= 1, 'a number above 0, at most 1'],
  repetitionPenalty: [(value) => Number.isFinite(value) && value > 0, 'a number above 0'],
  seed: [Number.isSafeInteger, 'a whole number'],
  eosTokenIds: [
    (value) => Array.isArray(value) && value.every((id) => Number.isSafeInteger(id) && id >= 0),
    'token ids',
  ],
};

/** Fields of generation_config.json by setting. */
const FIELDS = {
  max_new_tokens: 'maxNewTokens',
  do_sample: 'doSample',
  temperature: 'temperature',
  top_k: 'topK',
  top_p: 'topP',
  repetition_penalty: 'repetitionPenalty',
} as const;

/** Fields that change what transformers generates and are not done here, with the value that does
 * nothing. */
const NOT_DONE: Readonly<Record<string, unknown>> = {
  num_beams: 1,
  num_beam_groups: 1,
  min_p: 0,
  typical_p: 1,
  epsilon_cutoff: 0,
  eta_cutoff: 0,
  no_repeat_ngram_size: 0,
  encoder_repetition_penalty: 1,
  penalty_alpha: 0,
  min_length: 0,
  min_new_tokens: 0,
  guidance_scale: 1,
  bad_words_ids: undefined,
  sequence_bias: undefined,
  suppress_tokens: undefined,
  begin_suppress_tokens: undefined,
  forced_bos_token_id: undefined,
  forced_eos_token_id: undefined,
};

/** What the caller asks for; undefined leaves the folder's or the default. */
export type GenerationOverrides = {
  readonly [K in keyof GenerationSettings]?: GenerationSettings[K] | undefined;
};

/** Checks what the caller asks for. @throws CONFIG_INVALID naming the setting */
export function checkOverrides(overrides: GenerationOverrides): void {
  for (const [name, value] of given(overrides)) {
    const fault = faultOf(name, value);
    if (fault !== undefined) throw new SpillwayError('CONFIG_INVALID', fault, { option: name });
  }
}

/**
 * The settings of a model folder: generation_config.json's, with the end tokens of config.json where
 * it names none.
 *
 * @param config the folder's config.json
 * @throws MODEL_CONFIG_INVALID naming a field that cannot be
 */
export async function folderSettings(
  folder: string,
  config: JsonObject,
  logger: Logger,
): Promise<GenerationSettings> {
  const path = join(folder, 'generation_config.json');
  const file = (await readJson(path)) ?? {};
  const found: Record<string, unknown> = {};
  for (const [field, name] of Object.entries(FIELDS)) {
    if (file[field] !== undefined && file[field] !== null) found[name] = file[field];
  }
  const eos = file['eos_token_id'] ?? config['eos_token_id'];
  if (eos !== undefined && eos !== null) found['eosTokenIds'] = Array.isArray(eos) ? eos : [eos];
  for (const [name, value] of given(found)) {
    const fault = faultOf(name, value);
    if (fault === undefined) continue;
    throw new SpillwayError('MODEL_CONFIG_INVALID', `${path}: ${fault}`, { field: name });
  }
  warnOfOthers(file, logger);
  return { ...DEFAULTS, ...found };
}

/** `settings` with what the caller asks for. @throws CONFIG_INVALID naming the setting */
export function overridden(
  settings: GenerationSettings,
  overrides: GenerationOverrides,
): GenerationSettings {
  checkOverrides(overrides);
  return { ...settings, ...Object.fromEntries(given(overrides)) };
}

function given(settings: GenerationOverrides): [keyof GenerationSettings, unknown][] {
  const entries = Object.entries(settings) as [keyof GenerationSettings, unknown][];
  return entries.filter(([, value]) => value !== undefined);
}

function faultOf(name: keyof GenerationSettings, value: unknown): string | undefined {
  const [isValid, wanted] = RULES[name] as readonly [(value: unknown) => boolean, string];
  const isNumeric = !['doSample', 'eosTokenIds'].includes(name);
  if ((!isNumeric || typeof value === 'number') && isValid(value)) return undefined;
  const field = Object.entries(FIELDS).find(([, setting]) => setting === name)?.[0] ?? name;
  return `${field} is ${JSON.stringify(value)}; give ${wanted}`;
}

function warnOfOthers(file: JsonObject, logger: Logger): void {
  const names = Object.entries(NOT_DONE).flatMap(([name, neutral]) => {
    const value = file[name];
    const isEmpty = value === undefined || value === null || value === neutral;
    const isNothing =
      (Array.isArray(value) || isJsonObject(value)) && Object.keys(value).length === 0;
    return isEmpty || isNothing ? [] : [name];
  });
  if (names.length === 0) return;
  logger.warn(`generation_config.json sets ${names.join(', ')}, which generation here leaves out`);
}
