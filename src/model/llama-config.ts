/**
 * @file config.json of the Llama-like families: what is read, with the defaults of transformers'
 * config classes (llama-families.ts).
 */
import { z } from 'zod';
import { SpillwayError } from '../../core/errors.js';
import {
  checkConfig,
  configLayers,
  configSize as size,
  oneOf,
  type ConfigOptions,
  type FieldRules,
  type JsonObject,
} from './config-rules.js';
import { LLAMA_FAMILIES, type LlamaFamily, type LlamaFamilyName } from './llama-families.js';
import { ropeFromConfig } from './rope-config.js';
import type { Rope } from './rope.js';
import type { SequenceLimit } from './sequence-limit.js';
import { windowsOf } from './sliding-window.js';

const anObject = z.record(z.string(), z.unknown());

const schema = z.object({
  vocab_size: z
    .int()
    .positive()
    .max(2 ** 31 - 1),
  hidden_size: size,
  intermediate_size: size,
  num_hidden_layers: configLayers,
  num_attention_heads: size,
  num_key_value_heads: size.optional(),
  head_dim: size.optional(),
  max_position_embeddings: size.optional(),
  original_max_position_embeddings: size.optional(),
  rms_norm_eps: z.number().positive().optional(),
  rope_theta: z.number().positive().optional(),
  rope_scaling: anObject.optional(),
  rope_parameters: anObject.optional(),
  attention_bias: z.boolean().default(false),
  mlp_bias: z.boolean().default(false),
  sliding_window: size.optional(),
  use_sliding_window: z.boolean().default(false),
  max_window_layers: z.int().nonnegative().default(28),
  layer_types: z.array(z.string()).optional(),
  initializer_range: z.number().nonnegative().default(0.02),
  tie_word_embeddings: z.boolean().default(false),
});

/** The sizes and peculiarities of a Llama-like model. */
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
  /** Which projections have a bias: queries, keys and values; attention's output; the feed-forward
   * part's three. */
  readonly biases: { readonly qkv: boolean; readonly output: boolean; readonly mlp: boolean };
  /** RMSNorm of each head's query and key before they are turned. */
  readonly headNorms: boolean;
  /** One matrix for q, k and v, and one for gate and up. */
  readonly fusedProjections: boolean;
  /** What sequences of each layer may not exceed. */
  readonly limits: readonly (readonly SequenceLimit[])[];
}

/**
 * Reads a config.json of `family`.
 *
 * @throws MODEL_CONFIG_INVALID, MODEL_UNSUPPORTED (config-rules.ts)
 */
export function parseLlamaConfig(
  name: LlamaFamilyName,
  config: JsonObject,
  options: ConfigOptions,
): LlamaConfig {
  const family = LLAMA_FAMILIES[name];
  const { dropout, harmless } = family;
  const mathematics = mathematicsOf(family);
  const rules = { modelType: name, schema, mathematics, dropout, harmless };
  const fields = checkConfig(config, rules, options);
  const sizes = headSizes(config, fields, family);
  const positions = fields.max_position_embeddings ?? family.positions;
  const defaultOnly = family.defaultRopeOnly;
  const context = { headWidth: sizes.headWidth, positions, defaultOnly };
  const { rope, limits } = ropeFromConfig(config, context);
  const everyProjection = family.attentionBias === 'configured' && fields.attention_bias;
  return {
    vocabSize: fields.vocab_size,
    positions,
    hiddenSize: fields.hidden_size,
    innerSize: fields.intermediate_size,
    layers: fields.num_hidden_layers,
    ...sizes,
    epsilon: fields.rms_norm_eps ?? family.epsilon,
    rope,
    initStd: fields.initializer_range,
    tied: fields.tie_word_embeddings,
    biases: {
      qkv: family.attentionBias === 'qkv' || everyProjection,
      output: everyProjection,
      mlp: family.mlpBias && fields.mlp_bias,
    },
    headNorms: family.headNorms,
    fusedProjections: family.fusedProjections,
    limits: windowsOf(config, fields, family.window).map((window) =>
      window === undefined ? limits : [...limits, { field: 'sliding_window', length: window }],
    ),
  };
}

/** Fields that change the mathematics, and the values that say what the family computes. */
function mathematicsOf(family: LlamaFamily): FieldRules {
  const { attentionBias, mlpBias, window, mathematics } = family;
  const any = (): boolean => true;
  const onlyFull = (value: unknown): boolean =>
    Array.isArray(value) && value.every((type) => type === 'full_attention');
  return {
    hidden_act: oneOf('silu', 'swish'),
    partial_rotary_factor: oneOf(1),
    // What these two may say, ropeFromConfig decides.
    rope_scaling: any,
    rope_parameters: any,
    attention_bias: attentionBias === 'configured' ? any : oneOf(false),
    mlp_bias: mlpBias ? any : oneOf(false),
    ...(window.layers === 'none' ? { layer_types: onlyFull } : { sliding_window: any }),
    // transformers ignores it where every layer has the window.
    ...(window.layers === 'every' && { layer_types: () => false }),
    ...(window.layers === 'upper' && { use_sliding_window: any, layer_types: any }),
    ...mathematics,
  };
}

function headSizes(
  config: JsonObject,
  fields: z.output<typeof schema>,
  family: LlamaFamily,
): Pick<LlamaConfig, 'heads' | 'keyHeads' | 'headWidth'> {
  const heads = fields.num_attention_heads;
  const absent = config['num_key_value_heads'] === null ? heads : (family.keyHeads ?? heads);
  const keyHeads = fields.num_key_value_heads ?? absent;
  const headWidth = fields.head_dim ?? family.headWidth ?? fields.hidden_size / heads;
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
