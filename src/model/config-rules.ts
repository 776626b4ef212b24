/**
 * @file Judges every field of a Hugging Face config.json: read, refused, ignored or warned about.
 *
 * - Fields that a model reads are checked by its schema (MODEL_CONFIG_INVALID).
 * - Fields that change the mathematics are refused by name unless they say what we compute
 *   (MODEL_UNSUPPORTED).
 * - Dropout above 0 runs as 0 with one warning that names the keys; strict refuses it.
 * - Fields known to be harmless are ignored. Any other field is ignored with one warning, since
 *   transformers ignores fields that a model does not know; strict refuses it.
 *
 * A field that is null counts as absent, as in transformers.
 */
import { z } from 'zod';
import type { Logger } from '../../core/logger.js';
import { SpillwayError } from '../../core/errors.js';

/** A parsed config.json. */
export type JsonObject = Readonly<Record<string, unknown>>;

/** How to treat what is not plainly supported. */
export interface ConfigOptions {
  /** Refuse dropout above 0 and unknown fields instead of warning. */
  readonly strict: boolean;
  readonly logger: Logger;
}

/** Which values of a field say what we compute, by name. */
export type FieldRules = Readonly<Record<string, (value: unknown) => boolean>>;

/** What a model type does with its fields. */
export interface ConfigRules<Schema extends z.ZodType> {
  readonly modelType: string;
  /** Fields that the model reads; others pass through. */
  readonly schema: Schema;
  /** Fields that change the mathematics. */
  readonly mathematics: FieldRules;
  readonly dropout: readonly string[];
  /** Fields of this model type that change nothing here, besides the shared ones. */
  readonly harmless: readonly string[];
}

/** A width or a count of a model: whole, positive, far above what any model has. */
export const configSize = z
  .int()
  .positive()
  .max(2 ** 24);

/** A count of layers; a chain of blocks is made of it. */
export const configLayers = z.int().positive().max(10_000);

/** Whether a field has one of `values`. */
export function oneOf(...values: readonly unknown[]): (value: unknown) => boolean {
  return (value) => values.includes(value);
}

/** Fields of every model type that say nothing about the loss. */
const SHARED_HARMLESS = new Set(
  `_name_or_path _commit_hash _attn_implementation _attn_implementation_autoset architectures
  attn_implementation bad_words_ids begin_suppress_tokens bos_token_id chunk_size_feed_forward
  cls_token_id decoder_start_token_id diversity_penalty do_sample dtype early_stopping
  encoder_no_repeat_ngram_size eos_token_id exponential_decay_length_penalty finetuning_task
  forced_bos_token_id forced_eos_token_id gradient_checkpointing id2label initializer_range
  label2id length_penalty mask_token_id max_length min_length model_type no_repeat_ngram_size
  num_beam_groups num_beams num_labels num_return_sequences output_attentions
  output_hidden_states output_past output_scores pad_token_id prefix problem_type
  remove_invalid_values repetition_penalty return_dict return_dict_in_generate sep_token_id
  suppress_tokens task_specific_params temperature tf_legacy_loss tie_encoder_decoder
  tokenizer_class top_k top_p torch_dtype torchscript transformers.js_config
  transformers_version typical_p
  unk_token_id use_bfloat16 use_cache`.split(/\s+/),
);

/** Fields of every model type that change the mathematics. */
const SHARED_MATHEMATICS: FieldRules = {
  add_cross_attention: oneOf(false),
  cross_attention_hidden_size: () => false,
  is_encoder_decoder: oneOf(false),
  pruned_heads: (value) => typeof value === 'object' && Object.keys(value as object).length === 0,
  quantization_config: () => false,
  sliding_window: () => false,
  use_sliding_window: oneOf(false),
};

/**
 * Checks `config` by `rules` and returns the fields that the schema reads.
 *
 * @throws MODEL_CONFIG_INVALID naming a missing or invalid field, MODEL_UNSUPPORTED naming one that
 *   we do not compute
 */
export function checkConfig<Schema extends z.ZodType>(
  config: JsonObject,
  rules: ConfigRules<Schema>,
  options: ConfigOptions,
): z.output<Schema> {
  const present = Object.fromEntries(
    Object.entries(config).filter(([, value]) => value !== null && value !== undefined),
  );
  const mathematics = { ...SHARED_MATHEMATICS, ...rules.mathematics };
  for (const [name, value] of Object.entries(present)) {
    if (Object.hasOwn(mathematics, name) && !mathematics[name]!(value)) refuse(name, value, rules);
  }
  const fields = parseFields(present, rules);
  treatDropout(present, rules, options);
  treatUnknown(present, rules, Object.keys(mathematics), options);
  return fields;
}

function parseFields<Schema extends z.ZodType>(
  present: JsonObject,
  rules: ConfigRules<Schema>,
): z.output<Schema> {
  const parsed = rules.schema.safeParse(present);
  if (parsed.success) return parsed.data;
  const issue = parsed.error.issues[0];
  const name = cut(issue?.path.join('.') ?? '');
  throw new SpillwayError(
    'MODEL_CONFIG_INVALID',
    `config.json: ${name} is missing or invalid: ${cut(issue?.message ?? '')}; compare with a ${rules.modelType} config of transformers`,
    { field: name, value: shown(present[name]) },
  );
}

function treatDropout(
  present: JsonObject,
  rules: ConfigRules<z.ZodType>,
  { strict, logger }: ConfigOptions,
): void {
  const active: string[] = [];
  for (const name of rules.dropout) {
    const value = present[name];
    if (value === undefined || value === 0) continue;
    if (typeof value !== 'number' || !(value > 0 && value < 1)) {
      throw new SpillwayError(
        'MODEL_CONFIG_INVALID',
        `config.json: ${name} must be a probability below 1; correct it`,
        { field: name, value: shown(value) },
      );
    }
    active.push(name);
  }
  if (active.length === 0) return;
  const names = active.join(', ');
  if (strict) {
    throw new SpillwayError(
      'MODEL_UNSUPPORTED',
      `config.json asks for dropout (${names}), which Spillway does not apply; set it to 0 or leave strict_config off`,
      { fields: active },
    );
  }
  logger.warn(`config.json asks for dropout (${names}); it runs as 0`);
}

function treatUnknown(
  present: JsonObject,
  rules: ConfigRules<z.ZodType>,
  mathematics: readonly string[],
  { strict, logger }: ConfigOptions,
): void {
  const shape = rules.schema instanceof z.ZodObject ? Object.keys(rules.schema.shape) : [];
  const known = new Set([...shape, ...mathematics, ...rules.dropout, ...rules.harmless]);
  const unknown = Object.keys(present).filter(
    (name) => !known.has(name) && !SHARED_HARMLESS.has(name),
  );
  if (unknown.length === 0) return;
  const names = cut(unknown.join(', '), 1000);
  if (strict) {
    throw new SpillwayError(
      'MODEL_UNSUPPORTED',
      `config.json has fields that Spillway does not know for ${rules.modelType} (${names}); remove them or leave strict_config off`,
      { fields: unknown.slice(0, 8).map((name) => cut(name)) },
    );
  }
  logger.warn(`config.json has fields unknown for ${rules.modelType} (${names}); they are ignored`);
}

function refuse(name: string, value: unknown, rules: ConfigRules<z.ZodType>): never {
  throw new SpillwayError(
    'MODEL_UNSUPPORTED',
    `config.json: ${name} = ${shown(value)} is not supported for ${rules.modelType}; use a model without it`,
    { field: name },
  );
}

/** A field's value for a message, cut to one short line. */
export function shown(value: unknown): string {
  if (value === undefined) return 'absent';
  const text = JSON.stringify(typeof value === 'string' ? value.slice(0, 80) : value);
  return cut(text, 80);
}

/** A text from a file for a message: names and what quotes them may have any length. */
export function cut(text: string, longest = 200): string {
  return text.length > longest ? `${text.slice(0, longest - 3)}...` : text;
}
