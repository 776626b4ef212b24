/**
 * @file Keys of transformers and TRL that configurations commonly have and that decide nothing here.
 *
 * Of a fixed key one value is what Spillway does anyway, and any other is refused. An idle key may
 * have any value, for none changes a result; what is given is named in a note. Neither becomes a
 * field of `TrainConfig`.
 */
import { z } from 'zod';
import type { ConfigKey } from '../config-key.js';

type Shape = ConfigKey<unknown>['shape'];

function fixed(value: string | number | boolean, meaning: string): ConfigKey<unknown> {
  const text = String(value);
  const isIt = (given: unknown) =>
    String(given) === text ||
    (typeof value === 'number' && given !== '' && Number(given) === value);
  return {
    shape: typeof value === 'boolean' ? 'boolean' : 'scalar',
    schema: z.unknown().refine(isIt),
    type: text,
    fallback: undefined,
    fallbackText: text,
    meaning,
    source: 'Hugging Face',
    reason: spokenOf(meaning),
  };
}

/** A sentence as a part of another. */
function spokenOf(meaning: string): string {
  const plain = meaning.replaceAll('`', '').replace(/\.$/, '');
  return `here ${plain.charAt(0).toLowerCase()}${plain.slice(1)}`;
}

function idle(shape: Shape, meaning: string): ConfigKey<unknown> {
  return {
    shape,
    schema: z.unknown(),
    type: shape === 'boolean' ? 'true | false' : 'anything',
    fallback: undefined,
    fallbackText: 'none',
    meaning,
    source: 'Hugging Face',
  };
}

/** Keys with one possible value. */
export const FIXED_KEYS = {
  do_train: fixed(true, '`spillway train` trains.'),
  overwrite_output_dir: fixed(true, 'An `output_dir` that exists is written into.'),
  logging_strategy: fixed('steps', 'metrics.jsonl has a line every `logging_steps`.'),
  prediction_loss_only: fixed(true, 'An evaluation gives loss and perplexity.'),
  eval_delay: fixed(0, 'Evaluations begin with the first interval.'),
  dataloader_drop_last: fixed(false, 'The last, smaller micro-batch of an epoch is used.'),
  group_by_length: fixed(false, 'Rows are shuffled; see `packing` against padding.'),
  train_sampling_strategy: fixed('random', 'Rows are shuffled by `seed`.'),
  packing_strategy: fixed('bfd', 'Best fit decreasing.'),
  label_smoothing_factor: fixed(0, 'The loss is the plain cross-entropy.'),
  auto_find_batch_size: fixed(
    false,
    'Micro-batches are as large as `per_device_train_batch_size`.',
  ),
  ignore_data_skip: fixed(false, 'A resumed run goes on in the data where it was.'),
  tf32: fixed(false, 'Products of float32 are float32.'),
  trust_remote_code: fixed(false, 'No code of a model folder is run.'),
  save_safetensors: fixed(true, 'Weights are saved as safetensors.'),
  push_to_hub: fixed(false, 'Nothing is uploaded.'),
} satisfies Record<string, ConfigKey<unknown>>;

/** Keys that change no result here. */
export const IDLE_KEYS = {
  full_determinism: idle('boolean', 'Runs are always deterministic.'),
  remove_unused_columns: idle('boolean', 'Columns that training does not use are never loaded.'),
  dataloader_num_workers: idle('scalar', 'Rows are in memory before the first step.'),
  dataloader_pin_memory: idle('boolean', 'Staging memory is managed by the engine.'),
  dataloader_persistent_workers: idle('boolean', 'Rows are in memory before the first step.'),
  dataloader_prefetch_factor: idle('scalar', 'Rows are in memory before the first step.'),
  gradient_checkpointing_kwargs: idle('scalar', 'There is one way of checkpointing.'),
  attn_implementation: idle('scalar', 'The device chooses its kernels.'),
  flash_attention: idle('boolean', 'The device chooses its kernels.'),
  use_liger_kernel: idle('boolean', 'The device chooses its kernels.'),
  torch_compile: idle('boolean', 'The device chooses its kernels.'),
  use_cache: idle('boolean', 'Training keeps no cache of keys and values.'),
  average_tokens_across_devices: idle('boolean', 'There is one device.'),
  ddp_find_unused_parameters: idle('boolean', 'There is one device.'),
  ddp_timeout: idle('scalar', 'There is one device.'),
  local_rank: idle('scalar', 'There is one device.'),
  save_on_each_node: idle('boolean', 'There is one machine.'),
  eval_accumulation_steps: idle('scalar', 'Evaluations keep only sums.'),
  torch_empty_cache_steps: idle('scalar', 'Device memory is planned ahead.'),
  skip_memory_metrics: idle('boolean', 'Peaks are always in summary.json.'),
  run_name: idle('scalar', 'Nothing is reported to a service.'),
  logging_dir: idle('scalar', 'metrics.jsonl lies in `output_dir`.'),
} satisfies Record<string, ConfigKey<unknown>>;
