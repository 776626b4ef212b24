// Goal: every config field is read, refused by name, warned about or known to be harmless.
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { hasCode, SpillwayError } from '../../core/errors.js';
import type { Logger } from '../../core/logger.js';
import { checkChain } from '../../src/model/check-chain.js';
import { modelFromConfig, type ModelDefinition } from '../../src/model/model-from-config.js';
import { FIXTURES } from './fixture-model.js';

type Fields = Record<string, unknown>;

const GPT2: Fields = {
  model_type: 'gpt2',
  vocab_size: 11,
  n_positions: 8,
  n_embd: 6,
  n_layer: 2,
  n_head: 3,
};

const LLAMA: Fields = {
  model_type: 'llama',
  vocab_size: 11,
  hidden_size: 8,
  intermediate_size: 10,
  num_hidden_layers: 2,
  num_attention_heads: 4,
};

const LLAMA3: Fields = {
  rope_type: 'llama3',
  factor: 8,
  low_freq_factor: 1,
  high_freq_factor: 4,
  original_max_position_embeddings: 8192,
};

class Warnings implements Logger {
  readonly lines: string[] = [];
  info(): void {
    throw new Error('nothing is to be noted');
  }
  warn(message: string): void {
    this.lines.push(message);
  }
}

function build(config: unknown, strict = false): { model: ModelDefinition; warnings: string[] } {
  const logger = new Warnings();
  const model = modelFromConfig(config, { strict, logger });
  return { model, warnings: logger.lines };
}

function refusal(config: unknown, strict = false): SpillwayError {
  try {
    build(config, strict);
  } catch (error) {
    if (error instanceof SpillwayError) return error;
    throw error;
  }
  throw new Error('it was accepted');
}

describe('fields that change the mathematics', () => {
  it.each<[string, Fields, string, unknown]>([
    ['gpt2', GPT2, 'activation_function', 'relu'],
    ['gpt2', GPT2, 'activation_function', 'gelu'],
    ['gpt2', GPT2, 'scale_attn_weights', false],
    ['gpt2', GPT2, 'scale_attn_by_inverse_layer_idx', true],
    ['gpt2', GPT2, 'reorder_and_upcast_attn', true],
    ['gpt2', GPT2, 'add_cross_attention', true],
    ['gpt2', GPT2, 'is_encoder_decoder', true],
    ['gpt2', GPT2, 'pruned_heads', { 0: [1] }],
    ['gpt2', GPT2, 'quantization_config', { quant_method: 'gptq' }],
    ['llama', LLAMA, 'hidden_act', 'gelu'],
    ['llama', LLAMA, 'pretraining_tp', 2],
    ['llama', LLAMA, 'sliding_window', 4096],
    ['llama', LLAMA, 'partial_rotary_factor', 0.5],
    ['llama', LLAMA, 'use_sliding_window', true],
    ['llama', LLAMA, 'layer_types', ['full_attention', 'sliding_attention']],
    ['llama', LLAMA, 'rope_interleaved', true],
    ['llama', LLAMA, 'rope_scaling', { type: 'longrope', short_factor: [1], long_factor: [1] }],
    ['llama', LLAMA, 'rope_scaling', { rope_type: 'toString' }],
    ['llama', LLAMA, 'rope_parameters', { rope_type: 'linear', factor: 2, mrope_section: [1] }],
    ['llama', LLAMA, 'rope_parameters', { rope_type: 'default', partial_rotary_factor: 0.5 }],
    ['llama', LLAMA, 'rope_parameters', { rope_type: 'default', factor: 2 }],
    ['llama', LLAMA, 'quantization_config', { load_in_8bit: true }],
  ])('of a %s config are refused, %o with %s = %o', (_type, base, field, value) => {
    const error = refusal({ ...base, [field]: value });
    expect(error).toMatchObject({ code: 'MODEL_UNSUPPORTED', facts: { field } });
    expect(error.message).toContain(field);
  });

  it('accepts them at the values that it computes, or null, without a warning', () => {
    const gpt2 = {
      activation_function: 'gelu_pytorch_tanh',
      scale_attn_weights: true,
      add_cross_attention: false,
      pruned_heads: {},
      quantization_config: null,
    };
    const llama = {
      hidden_act: 'silu',
      rope_scaling: null,
      sliding_window: null,
      rope_parameters: { rope_type: 'default', rope_theta: 500000 },
      pretraining_tp: 1,
    };
    expect(build({ ...GPT2, ...gpt2 }, true).warnings).toEqual([]);
    expect(build({ ...LLAMA, ...llama }, true).warnings).toEqual([]);
  });
});

describe('missing and invalid fields', () => {
  it.each<[Fields, string, unknown]>([
    [GPT2, 'vocab_size', undefined],
    [GPT2, 'n_embd', -6],
    [GPT2, 'n_layer', 2.5],
    [GPT2, 'n_head', '3'],
    [GPT2, 'n_inner', 0],
    [GPT2, 'layer_norm_epsilon', 'small'],
    [GPT2, 'tie_word_embeddings', 'yes'],
    [GPT2, 'resid_pdrop', 'lots'],
    [GPT2, 'attn_pdrop', 1.5],
    [LLAMA, 'intermediate_size', undefined],
    [LLAMA, 'num_key_value_heads', 0],
    [LLAMA, 'rms_norm_eps', 0],
    [LLAMA, 'rope_theta', -1],
    [LLAMA, 'rope_parameters', { rope_theta: 'big' }],
    [LLAMA, 'rope_parameters', 'default'],
    [LLAMA, 'rope_scaling', { rope_type: 3, factor: 2 }],
    [LLAMA, 'rope_scaling', { rope_type: 'linear', type: 'dynamic', factor: 2 }],
    [LLAMA, 'rope_scaling', { rope_type: 'linear' }],
    [LLAMA, 'rope_scaling', { rope_type: 'linear', factor: 0 }],
    [LLAMA, 'rope_scaling', { rope_type: 'dynamic' }],
    [LLAMA, 'rope_scaling', { rope_type: 'llama3', factor: 8 }],
    [LLAMA, 'rope_scaling', { ...LLAMA3, high_freq_factor: 1 }],
    [LLAMA, 'rope_scaling', { rope_type: 'yarn', rope_theta: 10000 }],
    [LLAMA, 'rope_scaling', { rope_type: 'yarn', rope_theta: 1, factor: 2 }],
    [{ ...LLAMA, rope_parameters: { rope_type: 'default' } }, 'rope_scaling', LLAMA3],
  ])('of %o are refused by name, %s = %o', (base, field, value) => {
    const error = refusal({ ...base, [field]: value });
    expect(error.code).toBe('MODEL_CONFIG_INVALID');
    expect(error.message).toContain(field);
  });

  it('refuses sizes that do not divide', () => {
    expect(refusal({ ...GPT2, n_head: 4 }).message).toContain('multiple of n_head');
    expect(refusal({ ...LLAMA, num_key_value_heads: 3 }).message).toContain('num_key_value_heads');
    expect(refusal({ ...LLAMA, head_dim: 5 }).message).toContain('head_dim');
    expect(refusal({ ...LLAMA, num_attention_heads: 3 }).message).toContain('head_dim');
  });

  it.each([[null], ['gpt2'], [[]], [{}]])('refuses %o', (config) => {
    expect(refusal(config).code).toBe('MODEL_CONFIG_INVALID');
  });

  it.each(['gemma2', 'qwen3_moe', 'mixtral', 'toString', 5])(
    'refuses model type %s and lists the supported',
    (type) => {
      const error = refusal({ ...LLAMA, model_type: type });
      expect(error.code).toBe('MODEL_UNSUPPORTED');
      expect(error.message).toContain('gpt2, llama, mistral, qwen2, qwen3, phi3');
    },
  );
});

describe('dropout', () => {
  it('runs as 0 with one warning that names the keys', () => {
    const { warnings } = build({ ...GPT2, resid_pdrop: 0.1, attn_pdrop: 0.2, embd_pdrop: 0 });
    expect(warnings).toHaveLength(1);
    expect(warnings[0]).toContain('resid_pdrop, attn_pdrop');
    expect(warnings[0]).not.toContain('embd_pdrop');
    expect(build({ ...LLAMA, attention_dropout: 0.1 }).warnings[0]).toContain('attention_dropout');
  });

  it('is refused when strict', () => {
    const error = refusal({ ...GPT2, resid_pdrop: 0.1 }, true);
    expect(error.code).toBe('MODEL_UNSUPPORTED');
    expect(error.message).toContain('resid_pdrop');
  });
});

describe('unknown fields', () => {
  it('are ignored with one warning that names them, and refused when strict', () => {
    const config = { ...GPT2, n_emdb: 7, sparkle: true };
    const { warnings } = build(config);
    expect(warnings).toHaveLength(1);
    expect(warnings[0]).toContain('n_emdb, sparkle');
    expect(hasCode(refusal(config, true), 'MODEL_UNSUPPORTED')).toBe(true);
  });
});

describe('the chain', () => {
  it.each(FIXTURES)('of %s is valid', (name) => {
    const url = new URL(`../../fixtures/${name}/config.json`, import.meta.url);
    const { model, warnings } = build(JSON.parse(readFileSync(url, 'utf8')));
    expect(() => checkChain(model.blocks)).not.toThrow();
    expect(warnings).toHaveLength(name === 'gpt2-tiny-hub' ? 1 : 0);
  });

  it('excludes norms and biases from weight decay, and nothing else', () => {
    for (const config of [GPT2, LLAMA]) {
      for (const spec of build(config).model.blocks.flatMap((block) => block.owns)) {
        expect(spec.decay, spec.name).toBe(spec.shape.length > 1);
      }
    }
  });

  it('ties the head by default for gpt2 and not for llama', () => {
    const head = (config: Fields): string[] => [...build(config).model.blocks.at(-1)!.uses];
    expect(head(GPT2)).toContain('transformer.wte.weight');
    expect(head({ ...GPT2, tie_word_embeddings: false })).toContain('lm_head.weight');
    expect(head(LLAMA)).toContain('lm_head.weight');
    expect(head({ ...LLAMA, tie_word_embeddings: true })).toContain('model.embed_tokens.weight');
  });

  it('reads rope_theta in both spellings', () => {
    const kind = (changes: Fields): string =>
      build({ ...LLAMA, ...changes }).model.blocks[1]!.kindKey;
    expect(kind({})).toContain('theta=10000)');
    expect(kind({ rope_theta: 7 })).toContain('theta=7)');
    expect(kind({ rope_parameters: { rope_type: 'default', rope_theta: 9 } })).toContain(
      'theta=9)',
    );
  });
});

describe('names in files', () => {
  const { model: tied } = build(GPT2);
  const { model: untied } = build({ ...GPT2, tie_word_embeddings: false });
  const { model: llama } = build(LLAMA);

  it('are looked for with and without the prefix, a tied table also as the head', () => {
    expect(tied.fileNames('transformer.h.0.ln_1.bias')).toEqual([
      'transformer.h.0.ln_1.bias',
      'h.0.ln_1.bias',
    ]);
    expect(tied.fileNames('transformer.wte.weight')).toContain('lm_head.weight');
    expect(untied.fileNames('transformer.wte.weight')).not.toContain('lm_head.weight');
    expect(untied.fileNames('lm_head.weight')).toEqual(['lm_head.weight']);
    expect(llama.fileNames('model.norm.weight')).toEqual(['model.norm.weight', 'norm.weight']);
  });

  it('of masks, rotary tables and a tied head are known to be no parameters', () => {
    expect(tied.isNonParameter('h.11.attn.bias')).toBe(true);
    expect(tied.isNonParameter('transformer.h.0.attn.masked_bias')).toBe(true);
    expect(tied.isNonParameter('lm_head.weight')).toBe(true);
    expect(untied.isNonParameter('lm_head.weight')).toBe(false);
    expect(tied.isNonParameter('transformer.h.0.attn.c_attn.bias')).toBe(false);
    expect(llama.isNonParameter('model.layers.3.self_attn.rotary_emb.inv_freq')).toBe(true);
    expect(llama.isNonParameter('model.layers.3.self_attn.q_proj.bias')).toBe(false);
  });
});
