/**
 * @file Every configuration key of a training run, in the order of docs/CONFIG.md.
 *
 * Names are Hugging Face's (`TrainingArguments`, TRL's `SFTConfig`) and DeepSpeed's
 * (`zero_optimization`), spelled exactly; a dot stands for nesting in a file. Keys that neither of
 * them has are Spillway's own.
 */
import { availableParallelism } from 'node:os';
import { booleanKey, bytesKey, choiceKey, listKey, numberKey } from './config-key.js';
import { textKey, wholeKey } from './config-key.js';
import type { ConfigKey } from './config-key.js';

const OFFLOAD_DEVICES = ['none', 'cpu', 'nvme', 'auto'] as const;
const atLeast = (least: number) => (value: number) => value >= least;

/** The schema: key name → key. */
export const CONFIG_KEYS = {
  model_name_or_path: textKey('a folder', undefined, {
    meaning: 'Checkpoint folder in Hugging Face format that training starts from.',
    source: 'Hugging Face',
    fallbackText: 'required',
  }),
  output_dir: textKey('a folder', 'trainer_output', {
    meaning: 'Folder of metrics, checkpoints and the final model; created when absent.',
    source: 'Hugging Face',
  }),
  dtype: choiceKey(['float32', 'bfloat16'], 'float32', {
    meaning: 'Element type of the weights that compute reads; the master weights are float32.',
    source: 'Hugging Face',
  }),
  device: choiceKey(['auto', 'native', 'cpu', 'webgpu', 'tensorflow'], 'auto', {
    meaning:
      'Device that computes; one that is not there is refused as DEVICE_UNAVAILABLE. auto: native where the addon loads, else cpu.',
    source: 'Spillway',
  }),
  device_memory: bytesKey({
    meaning: 'Hard budget of device memory.',
    source: 'Spillway',
    fallbackText: 'a quarter of available memory',
  }),
  host_memory: bytesKey({
    meaning: 'Hard budget of host memory that the engine owns.',
    source: 'Spillway',
    fallbackText: 'half of available memory',
  }),
  nvme_path: listKey('a folder, or several', {
    meaning:
      'Folders of the NVMe tier; data is spread over them. Without one there is no NVMe tier.',
    source: 'DeepSpeed',
    fallbackText: 'none',
  }),
  nvme_memory: bytesKey({
    meaning: 'Hard budget of space in `nvme_path`, all folders together.',
    source: 'Spillway',
    fallbackText: '90 % of free space',
  }),
  'offload_param.device': choiceKey(OFFLOAD_DEVICES, 'auto', {
    meaning: 'Lowest tier of parameters: none (device), cpu (host), nvme; auto: what fits.',
    source: 'DeepSpeed',
  }),
  'offload_optimizer.device': choiceKey(OFFLOAD_DEVICES, 'auto', {
    meaning: 'Lowest tier of optimizer states: none (device), cpu (host), nvme; auto: what fits.',
    source: 'DeepSpeed',
  }),
  sub_group_size: wholeKey(
    'a whole multiple of 4096, at least 4096',
    (value) => value >= 4096 && value % 4096 === 0,
    16_777_216,
    {
      meaning: 'Most elements of a shard, the unit of storage and of optimizer work.',
      source: 'DeepSpeed',
    },
  ),
  micro_batch_order: choiceKey(['auto', 'vertical', 'horizontal'], 'auto', {
    meaning:
      'vertical: all micro-batches of a block, then the next block (fewest loads); horizontal: all blocks, then the next micro-batch. Changes no bit of the result.',
    source: 'Spillway',
  }),
  optimizer_workers: wholeKey(
    'a whole number from 1 to 256',
    (value) => value >= 1 && value <= 256,
    Math.min(2, availableParallelism()),
    {
      meaning: 'Threads of the AdamW pool. Changes no bit of the result.',
      source: 'Spillway',
      fallbackText: 'the number of cores, at most 2',
    },
  ),
  data_files: listKey('a JSONL file, or several', {
    meaning: 'Training rows: `text`, or `input_ids` and, optionally, `labels`.',
    source: 'Hugging Face',
    fallbackText: 'required',
  }),
  dataset_text_field: textKey('a column', 'text', {
    meaning: 'Column of the text of rows that have no `input_ids`.',
    source: 'Hugging Face',
  }),
  max_length: wholeKey('a whole number, at least 2', atLeast(2), 1024, {
    meaning: 'Rows are truncated to this number of tokens.',
    source: 'Hugging Face',
  }),
  per_device_train_batch_size: wholeKey('a whole number, at least 1', atLeast(1), 1, {
    meaning: 'Rows per micro-batch.',
    source: 'Hugging Face',
  }),
  gradient_accumulation_steps: wholeKey('a whole number, at least 1', atLeast(1), 1, {
    meaning: 'Micro-batches per optimizer step.',
    source: 'Hugging Face',
  }),
  num_train_epochs: numberKey('a number above 0', (value) => value > 0 && value < 1e9, 3, {
    meaning: 'Passes over the data; a fraction ends within an epoch.',
    source: 'Hugging Face',
  }),
  max_steps: wholeKey('-1 or a whole number above 0', (value) => value === -1 || value > 0, -1, {
    meaning: 'Optimizer steps; overrides `num_train_epochs` unless -1.',
    source: 'Hugging Face',
  }),
  learning_rate: numberKey(
    'a number, at least 0',
    (value) => Number.isFinite(value) && value >= 0,
    2e-5,
    {
      meaning: 'Peak learning rate of AdamW.',
      source: 'Hugging Face',
    },
  ),
  lr_scheduler_type: choiceKey(['linear', 'cosine'], 'linear', {
    meaning: 'Decay of the learning rate to 0 after warm-up.',
    source: 'Hugging Face',
  }),
  warmup_steps: numberKey(
    'a whole number, or a share of all steps below 1',
    (value) => value >= 0 && (value < 1 || Number.isSafeInteger(value)),
    0,
    {
      meaning: 'Steps over which the learning rate rises from 0.',
      source: 'Hugging Face',
    },
  ),
  adam_beta1: numberKey('a number from 0 to below 1', (value) => value >= 0 && value < 1, 0.9, {
    meaning: "AdamW's decay of the first moment.",
    source: 'Hugging Face',
  }),
  adam_beta2: numberKey('a number from 0 to below 1', (value) => value >= 0 && value < 1, 0.999, {
    meaning: "AdamW's decay of the second moment.",
    source: 'Hugging Face',
  }),
  adam_epsilon: numberKey(
    'a number, at least 0',
    (value) => Number.isFinite(value) && value >= 0,
    1e-8,
    {
      meaning: "AdamW's epsilon.",
      source: 'Hugging Face',
    },
  ),
  weight_decay: numberKey(
    'a number, at least 0',
    (value) => Number.isFinite(value) && value >= 0,
    0,
    {
      meaning: 'Decoupled weight decay; never applied to norms and biases.',
      source: 'Hugging Face',
    },
  ),
  max_grad_norm: numberKey(
    'a number, at least 0',
    (value) => Number.isFinite(value) && value >= 0,
    1,
    {
      meaning: 'Gradients are scaled down to this global norm; 0 turns clipping off.',
      source: 'Hugging Face',
    },
  ),
  logging_steps: wholeKey('a whole number, at least 1', atLeast(1), 10, {
    meaning: 'Steps between lines of metrics.jsonl.',
    source: 'Hugging Face',
  }),
  save_strategy: choiceKey(['no', 'steps'], 'steps', {
    meaning: 'Whether checkpoint-<step> folders are written; the final model always is.',
    source: 'Hugging Face',
  }),
  save_steps: wholeKey('a whole number, at least 1', atLeast(1), 500, {
    meaning: 'Steps between checkpoints; the last step is saved as well.',
    source: 'Hugging Face',
  }),
  seed: wholeKey(
    'a whole number from 0 to 4294967295',
    (value) => value >= 0 && value < 2 ** 32,
    42,
    {
      meaning: 'Seed of everything random: shuffling, and randomness within blocks.',
      source: 'Hugging Face',
    },
  ),
  strict_config: booleanKey(false, {
    meaning: 'Refuse fields of the model configuration that are otherwise ignored with a warning.',
    source: 'Spillway',
  }),
} satisfies Record<string, ConfigKey<unknown>>;

/** A key's name as files and flags spell it. */
export type ConfigKeyName = keyof typeof CONFIG_KEYS;

/** Names in the order of the schema. */
export const CONFIG_KEY_NAMES = Object.keys(CONFIG_KEYS) as ConfigKeyName[];

/** Keys without which no training run starts. */
export const REQUIRED_KEYS = ['model_name_or_path', 'data_files'] as const;

/** Typed value of key `K`. */
export type ConfigValueOf<K extends ConfigKeyName> =
  (typeof CONFIG_KEYS)[K] extends ConfigKey<infer T> ? T : never;
