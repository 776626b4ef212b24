/**
 * @file Llama's config.json: what is read, with the defaults of transformers' LlamaConfig, in the
 * spelling of transformers 4 (`rope_theta`) and 5 (`rope_parameters`).
 */
import { z } from 'zod';
import { SpillwayError } from '../../core/errors.js';
import { checkConfig, oneOf, type ConfigOptions, type JsonObject } from './config-rules.js';
import { makeRope, type Rope } from './rope.js';

const size = z.int().positive();

const schema = z.object({
  vocab_size: size.max(2 ** 31 - 1),
  hidden_size: size,
  intermediate_size: size,
  num_hidden_layers: size,
  num_attention_heads: size,
  num_key_value_heads: size.optional(),
  head_dim: size.optional(),
  max_position_embeddings: size.default(2048),
  rms_norm_eps: z.number().positive().default(1e-6),
  rope_theta: z.number().positive().optional(),
  rope_parameters: z.looseObject({ rope_theta: z.number().positive().optional() }).optional(),
  initializer_range: z.number().nonnegative().default(0.02),
  tie_word_embeddings: z.boolean().default(false),
});

/** The sizes of a Llama model. */
export interface LlamaConfig {
  readonly vocabSize: number;
  readonly positions: number;
  readonly hiddenSize: number;
  readonly innerSize: number;
  readonly layers: number;
  readonly heads: number;
  readonly keyHeads: number;
  /** Width of one head; heads·headWidth need not be hiddenSize. */
  readonly headWidth: number;
  readonly epsilon: number;
  readonly rope: Rope;
  readonly initStd: number;
  readonly tied: boolean;
}

/**
 * Reads a Llama config.json.
 *
 * @throws MODEL_CONFIG_INVALID, MODEL_UNSUPPORTED (config-rules.ts)
 */
export function parseLlamaConfig(config: JsonObject, options: ConfigOptions): LlamaConfig {
  const fields = checkConfig(
    config,
    {
      modelType: 'llama',
      schema,
      mathematics: {
        hidden_act: oneOf('silu', 'swish'),
        attention_bias: oneOf(false),
        mlp_bias: oneOf(false),
        pretraining_tp: oneOf(1),
        partial_rotary_factor: oneOf(1),
        rope_scaling: isDefaultRope,
        rope_parameters: isDefaultRope,
      },
      dropout: ['attention_dropout', 'hidden_dropout', 'resid_pdrop'],
      harmless: ['is_decoder', 'is_llama_config', 'rope_interleaved'],
    },
    options,
  );
  const sizes = headSizes(fields);
  const theta = fields.rope_parameters?.rope_theta ?? fields.rope_theta ?? 10_000;
  return {
    vocabSize: fields.vocab_size,
    positions: fields.max_position_embeddings,
    hiddenSize: fields.hidden_size,
    innerSize: fields.intermediate_size,
    layers: fields.num_hidden_layers,
    ...sizes,
    epsilon: fields.rms_norm_eps,
    rope: makeRope(sizes.headWidth, theta),
    initStd: fields.initializer_range,
    tied: fields.tie_word_embeddings,
  };
}

/** Whether a rope description, in either spelling, asks for plain rotary embeddings. */
function isDefaultRope(value: unknown): boolean {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return false;
  const plain: Record<string, (field: unknown) => boolean> = {
    rope_type: oneOf('default'),
    type: oneOf('default'),
    rope_theta: () => true,
    partial_rotary_factor: oneOf(1),
  };
  return Object.entries(value).every(
    ([name, field]) => field === null || (Object.hasOwn(plain, name) && plain[name]!(field)),
  );
}

function headSizes(
  fields: z.output<typeof schema>,
): Pick<LlamaConfig, 'heads' | 'keyHeads' | 'headWidth'> {
  const heads = fields.num_attention_heads;
  const keyHeads = fields.num_key_value_heads ?? heads;
  const headWidth = fields.head_dim ?? fields.hidden_size / heads;
  const facts = { num_attention_heads: heads, num_key_value_heads: keyHeads, head_dim: headWidth };
  if (heads % keyHeads !== 0) {
    throw new SpillwayError(
      'MODEL_CONFIG_INVALID',
      'config.json: num_attention_heads must be a multiple of num_key_value_heads; correct them',
      facts,
    );
  }
  if (headWidth % 2 !== 0) {
    throw new SpillwayError(
      'MODEL_CONFIG_INVALID',
      'config.json: head_dim (hidden_size / num_attention_heads when absent) must be an even number; correct it',
      facts,
    );
  }
  return { heads, keyHeads, headWidth };
}
