/**
 * @file GPT-2's config.json: what is read, with the defaults of transformers' GPT2Config.
 */
import { z } from 'zod';
import {
  checkConfig,
  configLayers,
  configSize as size,
  oneOf,
  type ConfigOptions,
  type JsonObject,
} from './config-rules.js';
import { SpillwayError } from '../../core/errors.js';

const schema = z.object({
  vocab_size: z
    .int()
    .positive()
    .max(2 ** 31 - 1),
  n_positions: size,
  n_embd: size,
  n_layer: configLayers,
  n_head: size,
  n_inner: size.optional(),
  layer_norm_epsilon: z.number().positive().default(1e-5),
  initializer_range: z.number().nonnegative().default(0.02),
  tie_word_embeddings: z.boolean().default(true),
});

/** The sizes of a GPT-2 model. */
export interface Gpt2Config {
  readonly vocabSize: number;
  readonly positions: number;
  readonly hiddenSize: number;
  readonly layers: number;
  readonly heads: number;
  /** Width of the feed-forward part. */
  readonly innerSize: number;
  readonly epsilon: number;
  readonly initStd: number;
  readonly tied: boolean;
}

/**
 * Reads a GPT-2 config.json.
 *
 * @throws MODEL_CONFIG_INVALID, MODEL_UNSUPPORTED (config-rules.ts)
 */
export function parseGpt2Config(config: JsonObject, options: ConfigOptions): Gpt2Config {
  const fields = checkConfig(
    config,
    {
      modelType: 'gpt2',
      schema,
      mathematics: {
        // gelu_pytorch_tanh is another name of the same formula.
        activation_function: oneOf('gelu_new', 'gelu_pytorch_tanh'),
        scale_attn_weights: oneOf(true),
        scale_attn_by_inverse_layer_idx: oneOf(false),
        reorder_and_upcast_attn: oneOf(false),
      },
      dropout: ['resid_pdrop', 'embd_pdrop', 'attn_pdrop'],
      harmless: [
        'is_decoder',
        'n_ctx',
        'summary_activation',
        'summary_first_dropout',
        'summary_proj_to_labels',
        'summary_type',
        'summary_use_proj',
      ],
    },
    options,
  );
  if (fields.n_embd % fields.n_head !== 0) {
    throw new SpillwayError(
      'MODEL_CONFIG_INVALID',
      'config.json: n_embd must be a multiple of n_head; correct them',
      { n_embd: fields.n_embd, n_head: fields.n_head },
    );
  }
  return {
    vocabSize: fields.vocab_size,
    positions: fields.n_positions,
    hiddenSize: fields.n_embd,
    layers: fields.n_layer,
    heads: fields.n_head,
    innerSize: fields.n_inner ?? 4 * fields.n_embd,
    epsilon: fields.layer_norm_epsilon,
    initStd: fields.initializer_range,
    tied: fields.tie_word_embeddings,
  };
}
