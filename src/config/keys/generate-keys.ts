/**
 * @file Flags of `spillway generate`: the prompt, how it is continued, and the memory keys of a run.
 */
import { z } from 'zod';
import type { ConfigKey } from '../config-key.js';
import { booleanKey, numberKey, optional, textKey, wholeKey } from '../config-key.js';
import { MEMORY_KEYS } from './memory-keys.js';
import { MODEL_KEYS } from './model-keys.js';
import { atLeast } from './ranges.js';

const FOLDER = "the folder's generation_config.json, else ";

/** What the folder decides where nothing is given. */
function folders<T>(key: ConfigKey<T>, fallback: string): ConfigKey<T | undefined> {
  return { ...optional(key), fallback: undefined, fallbackText: `${FOLDER}${fallback}` };
}

/** One text, or several as a JSON list, which keeps commas and line breaks. */
const stopKey: ConfigKey<string[] | undefined> = {
  shape: 'scalar',
  type: 'a text, or a JSON list of texts',
  schema: z.preprocess((value) => textsOf(value), z.array(z.string().min(1)).min(1)),
  fallback: undefined,
  fallbackText: 'none',
  meaning: 'Texts that end the continuation; they are not part of it.',
  source: 'Spillway',
};

function textsOf(value: unknown): unknown {
  if (typeof value !== 'string') return value;
  if (!value.startsWith('[')) return [value];
  try {
    return JSON.parse(value) as unknown;
  } catch {
    return undefined; // Not the type that the message then names.
  }
}

export const GENERATE_KEYS = {
  prompt: optional(
    textKey('a text', undefined, {
      meaning: 'The text to continue.',
      source: 'Spillway',
      fallbackText: 'prompt_file, else standard input',
    }),
  ),
  prompt_file: optional(
    textKey('a file, or -', undefined, {
      meaning: 'File with the text to continue, without its last line break; - is standard input.',
      source: 'Spillway',
      fallbackText: 'none',
    }),
  ),
  chat: booleanKey(false, {
    meaning: 'Take the text as a user\u2019s message, by the folder\u2019s chat template.',
    source: 'Spillway',
  }),
  max_new_tokens: folders(
    wholeKey('a whole number, at least 1', atLeast(1), undefined, {
      meaning: 'Most tokens to add.',
      source: 'Hugging Face',
    }),
    '128',
  ),
  do_sample: folders(
    booleanKey(false, {
      meaning: 'Draw tokens; otherwise the likeliest is taken.',
      source: 'Hugging Face',
    }),
    'false',
  ),
  temperature: folders(
    numberKey('a number above 0', (value) => value > 0 && Number.isFinite(value), undefined, {
      meaning: 'Divides the logits before tokens are drawn.',
      source: 'Hugging Face',
    }),
    '1',
  ),
  top_k: folders(
    wholeKey('a whole number, at least 0', atLeast(0), undefined, {
      meaning: 'Draw among so many of the likeliest tokens; 0: among all.',
      source: 'Hugging Face',
    }),
    '50',
  ),
  top_p: folders(
    numberKey('a number above 0, at most 1', (value) => value > 0 && value <= 1, undefined, {
      meaning: 'Draw among the likeliest tokens that together have this probability.',
      source: 'Hugging Face',
    }),
    '1',
  ),
  repetition_penalty: folders(
    numberKey('a number above 0', (value) => value > 0 && Number.isFinite(value), undefined, {
      meaning: 'Above 1 makes tokens that are already there less likely.',
      source: 'Hugging Face',
    }),
    '1',
  ),
  stop: stopKey,
  seed: wholeKey('a whole number, at least 0', atLeast(0), 42, {
    meaning: 'Of the draws: the same seed draws the same tokens.',
    source: 'Hugging Face',
  }),
  dtype: MODEL_KEYS.dtype,
  strict_config: MODEL_KEYS.strict_config,
  device: MEMORY_KEYS.device,
  device_memory: optional(MEMORY_KEYS.device_memory),
  host_memory: optional(MEMORY_KEYS.host_memory),
  nvme_path: optional(MEMORY_KEYS.nvme_path),
  nvme_memory: optional(MEMORY_KEYS.nvme_memory),
  'offload_param.device': MEMORY_KEYS['offload_param.device'],
} satisfies Record<string, ConfigKey<unknown>>;
