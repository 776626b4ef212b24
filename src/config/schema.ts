/**
 * @file Every configuration key of a training run, in the order of docs/CONFIG.md.
 *
 * Names are Hugging Face's (`TrainingArguments`, TRL's `SFTConfig`) and DeepSpeed's
 * (`zero_optimization`), spelled exactly; a dot stands for nesting in a file. Keys that neither of
 * them has are Spillway's own.
 */
import type { ConfigKey } from './config-key.js';
import { DATA_KEYS } from './keys/data-keys.js';
import { MEMORY_KEYS } from './keys/memory-keys.js';
import { MODEL_KEYS } from './keys/model-keys.js';
import { OUTPUT_KEYS } from './keys/output-keys.js';
import { FIXED_KEYS, IDLE_KEYS } from './keys/standing-keys.js';
import { TRAINING_KEYS } from './keys/training-keys.js';

/** The schema: key name → key. */
export const CONFIG_KEYS = {
  ...MODEL_KEYS,
  ...MEMORY_KEYS,
  ...DATA_KEYS,
  ...TRAINING_KEYS,
  ...OUTPUT_KEYS,
};

/** Also the keys that are accepted and decide nothing. */
export const ACCEPTED_KEYS = { ...CONFIG_KEYS, ...FIXED_KEYS, ...IDLE_KEYS };

/** A key's name as files and flags spell it. */
export type ConfigKeyName = keyof typeof CONFIG_KEYS;

/** Names in the order of the schema. */
export const CONFIG_KEY_NAMES = Object.keys(CONFIG_KEYS) as ConfigKeyName[];

/** Keys without which no training run starts. */
export const REQUIRED_KEYS = ['model_name_or_path', 'data_files'] as const;

/** Typed value of key `K`. */
export type ConfigValueOf<K extends ConfigKeyName> =
  (typeof CONFIG_KEYS)[K] extends ConfigKey<infer T> ? T : never;
