/**
 * @file The families whose models are Llama's chain with small differences: which biases and norms
 * they have, and the defaults of their config classes in transformers 5.24.
 */
import { oneOf, type FieldRules } from './config-rules.js';

/** What distinguishes a family. */
export interface LlamaFamily {
  /** `max_position_embeddings` where absent. */
  readonly positions: number;
  /** `rms_norm_eps` where absent. */
  readonly epsilon: number;
  /** `num_key_value_heads` where absent; without it, and for null, as many as query heads. */
  readonly keyHeads?: number;
  /** `head_dim` where absent; without it hidden_size / num_attention_heads. */
  readonly headWidth?: number;
  /** Which projections of attention have a bias: q, k and v always, or all four if
   * `attention_bias` says so. */
  readonly attentionBias: 'none' | 'qkv' | 'configured';
  /** Whether `mlp_bias` gives the feed-forward part biases. */
  readonly mlpBias: boolean;
  /** RMSNorm of each head's query and key before they are turned. */
  readonly headNorms: boolean;
  /** One matrix for q, k and v (`qkv_proj`), and one for gate and up (`gate_up_proj`). */
  readonly fusedProjections: boolean;
  readonly window: WindowRule;
  /** Other rope types are refused: transformers knows none. */
  readonly defaultRopeOnly: boolean;
  readonly mathematics: FieldRules;
  readonly dropout: readonly string[];
  readonly harmless: readonly string[];
}

/**
 * Which layers `sliding_window` concerns: none of this family; every layer; or, if
 * `use_sliding_window` says so, those named in `layer_types` or from `max_window_layers` upward.
 * `length`: the window where the field is absent.
 */
export type WindowRule =
  | { readonly layers: 'none' }
  | { readonly layers: 'every'; readonly length?: number }
  | { readonly layers: 'upper'; readonly length: number };

const LLAMA: LlamaFamily = {
  positions: 2048,
  epsilon: 1e-6,
  attentionBias: 'configured',
  mlpBias: true,
  headNorms: false,
  fusedProjections: false,
  window: { layers: 'none' },
  defaultRopeOnly: false,
  mathematics: { pretraining_tp: oneOf(1), rope_interleaved: oneOf(false) },
  dropout: ['attention_dropout', 'hidden_dropout', 'resid_pdrop'],
  harmless: ['is_decoder', 'is_llama_config'],
};

const QWEN2: LlamaFamily = {
  ...LLAMA,
  positions: 32_768,
  keyHeads: 32,
  attentionBias: 'qkv',
  mlpBias: false,
  window: { layers: 'upper', length: 4096 },
  mathematics: {},
  dropout: ['attention_dropout'],
  harmless: [],
};

const FAMILIES = {
  llama: LLAMA,
  mistral: {
    ...LLAMA,
    positions: 131_072,
    keyHeads: 8,
    attentionBias: 'none',
    mlpBias: false,
    window: { layers: 'every', length: 4096 },
    mathematics: {},
    dropout: ['attention_dropout'],
    harmless: [],
  },
  qwen2: QWEN2,
  qwen3: { ...QWEN2, headWidth: 128, attentionBias: 'configured', headNorms: true },
  phi3: {
    ...LLAMA,
    positions: 4096,
    epsilon: 1e-5,
    attentionBias: 'none',
    mlpBias: false,
    fusedProjections: true,
    window: { layers: 'every' },
    defaultRopeOnly: true,
    // Fields of the models' own code, before transformers had the family.
    mathematics: {
      lm_head_bias: oneOf(false),
      full_attn_mod: oneOf(1),
      interpolate_factor: oneOf(1),
    },
    dropout: ['attention_dropout', 'resid_pdrop', 'embd_pdrop'],
    harmless: ['auto_map'],
  },
} as const satisfies Record<string, LlamaFamily>;

/** `model_type` of a family. */
export type LlamaFamilyName = keyof typeof FAMILIES;

/** The families by `model_type`. */
export const LLAMA_FAMILIES: Readonly<Record<LlamaFamilyName, LlamaFamily>> = FAMILIES;
