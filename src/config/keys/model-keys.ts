/**
 * @file Configuration keys of the model and of where results go.
 */
import type { ConfigKey } from '../config-key.js';
import { booleanKey, choiceKey, optional, textKey } from '../config-key.js';

export const MODEL_KEYS = {
  model_name_or_path: textKey('a folder', undefined, {
    meaning:
      'Checkpoint folder in Hugging Face format that training starts from; to `plan` and `tune`, its config.json will do.',
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
  bf16: booleanKey(false, {
    meaning: 'The same as `dtype: bfloat16`.',
    source: 'Hugging Face',
  }),
  fp16: booleanKey(false, {
    meaning: 'Refused when true: there is no loss scaling; use bf16.',
    source: 'Hugging Face',
  }),
  strict_config: booleanKey(false, {
    meaning: 'Refuse fields of the model configuration that are otherwise ignored with a warning.',
    source: 'Spillway',
  }),
  deepspeed: optional(
    textKey('a ds_config.json', undefined, {
      meaning:
        'DeepSpeed configuration whose ZeRO-3 offload, aio, optimizer, scheduler, clipping, batch and precision keys are mapped; `"auto"` takes the value given here. A key that both give with different values is an error.',
      source: 'Hugging Face',
      fallbackText: 'none',
    }),
  ),
} satisfies Record<string, ConfigKey<unknown>>;
