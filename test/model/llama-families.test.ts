// Goal: each Llama-like family has its own defaults, biases, norms, windows and refusals.
import { describe, expect, it } from 'vitest';
import type { SpillwayError } from '../../core/errors.js';
import { silentLogger, type Logger } from '../../core/logger.js';
import { parseLlamaConfig, type LlamaConfig } from '../../src/model/llama-config.js';
import { LLAMA_FAMILIES, type LlamaFamilyName } from '../../src/model/llama-families.js';
import { modelFromConfig } from '../../src/model/model-from-config.js';

type Fields = Record<string, unknown>;

const NAMES = Object.keys(LLAMA_FAMILIES) as LlamaFamilyName[];

const SIZES: Fields = {
  vocab_size: 11,
  hidden_size: 64,
  intermediate_size: 10,
  num_hidden_layers: 2,
  num_attention_heads: 32,
};

function parse(name: LlamaFamilyName, changes: Fields = {}, logger: Logger = silentLogger) {
  const config = { ...SIZES, model_type: name, ...changes };
  return parseLlamaConfig(name, config, { strict: false, logger });
}

function refusal(name: LlamaFamilyName, changes: Fields): SpillwayError {
  try {
    parse(name, changes);
  } catch (error) {
    return error as SpillwayError;
  }
  throw new Error('it was accepted');
}

function paramNames(name: LlamaFamilyName, changes: Fields = {}): string[] {
  const config = { ...SIZES, model_type: name, ...changes };
  const { blocks } = modelFromConfig(config, { strict: true, logger: silentLogger });
  return blocks[1]!.owns.map((spec) => spec.name.replace('model.layers.0.', ''));
}

const windows = ({ limits }: LlamaConfig): (number | undefined)[] =>
  limits.map((layer) => layer.find(({ field }) => field === 'sliding_window')?.length);

describe('defaults', () => {
  it.each<[LlamaFamilyName, Partial<LlamaConfig>]>([
    ['llama', { positions: 2048, epsilon: 1e-6, keyHeads: 32, headWidth: 2, tied: false }],
    ['mistral', { positions: 131072, epsilon: 1e-6, keyHeads: 8, headWidth: 2, tied: false }],
    ['qwen2', { positions: 32768, epsilon: 1e-6, keyHeads: 32, headWidth: 2, tied: false }],
    ['qwen3', { positions: 32768, epsilon: 1e-6, keyHeads: 32, headWidth: 128, tied: false }],
    ['phi3', { positions: 4096, epsilon: 1e-5, keyHeads: 32, headWidth: 2, tied: false }],
  ])("of %s are those of transformers' class", (name, expected) => {
    expect(parse(name)).toMatchObject({ ...expected, initStd: 0.02 });
    expect(parse(name).rope.key).toContain('theta=10000');
  });

  it('take as many key heads as query heads where the field is null', () => {
    for (const name of NAMES) {
      expect(parse(name, { num_key_value_heads: null }).keyHeads, name).toBe(32);
    }
  });
});

describe('biases and norms', () => {
  const BIASES = /\.bias$/;
  it.each<[LlamaFamilyName, Fields, string[]]>([
    ['llama', {}, []],
    ['llama', { attention_bias: true }, ['q', 'k', 'v', 'o'].map((x) => `self_attn.${x}_proj`)],
    ['llama', { mlp_bias: true }, ['gate', 'up', 'down'].map((x) => `mlp.${x}_proj`)],
    ['mistral', {}, []],
    ['qwen2', {}, ['q', 'k', 'v'].map((x) => `self_attn.${x}_proj`)],
    ['qwen3', {}, []],
    ['qwen3', { attention_bias: true }, ['q', 'k', 'v', 'o'].map((x) => `self_attn.${x}_proj`)],
    ['phi3', {}, []],
  ])('of %s with %o stand on the right projections', (name, changes, expected) => {
    const biases = paramNames(name, changes).filter((param) => BIASES.test(param));
    expect(biases.map((param) => param.replace(BIASES, ''))).toEqual(expected);
  });

  it('of heads are qwen3 alone', () => {
    for (const name of NAMES) {
      const norms = paramNames(name).filter((param) => param.includes('_norm.'));
      const expected = ['self_attn.q_norm.weight', 'self_attn.k_norm.weight'];
      expect(norms, name).toEqual(name === 'qwen3' ? expected : []);
    }
  });

  it('change the kind key, as do rope, window and fused projections', () => {
    const kind = (name: LlamaFamilyName, changes: Fields = {}): string =>
      modelFromConfig(
        {
          ...SIZES,
          head_dim: 2,
          num_key_value_heads: 32,
          rms_norm_eps: 1e-6,
          ...changes,
          model_type: name,
        },
        { strict: true, logger: silentLogger },
      ).blocks[1]!.kindKey;
    const keys = [
      kind('llama'),
      kind('llama', { attention_bias: true }),
      kind('llama', { mlp_bias: true }),
      kind('llama', { rope_theta: 5 }),
      kind('llama', { rope_scaling: { type: 'linear', factor: 2 } }),
      kind('llama', { rope_scaling: { type: 'linear', factor: 3 } }),
      kind('llama', { rope_scaling: { type: 'dynamic', factor: 3 } }),
      kind('mistral', { sliding_window: 7 }),
      kind('mistral', { sliding_window: 8 }),
      kind('qwen2'),
      kind('qwen3'),
      kind('phi3'),
    ];
    expect(new Set(keys).size).toBe(keys.length);
    expect(kind('mistral', { sliding_window: null })).toBe(kind('llama'));
  });
});

describe('refusals', () => {
  it.each<[LlamaFamilyName, string, unknown]>([
    ['mistral', 'attention_bias', true],
    ['mistral', 'layer_types', ['sliding_attention', 'full_attention']],
    ['qwen2', 'attention_bias', true],
    ['qwen2', 'mlp_bias', true],
    ['qwen2', 'hidden_act', 'gelu'],
    ['qwen2', 'layer_types', ['full_attention', 'linear_attention']],
    ['qwen3', 'partial_rotary_factor', 0.25],
    ['phi3', 'rope_scaling', { type: 'longrope', short_factor: [1], long_factor: [1] }],
    ['phi3', 'rope_scaling', { type: 'yarn', factor: 2 }],
    ['phi3', 'rope_scaling', { type: 'linear', factor: 2 }],
    ['phi3', 'partial_rotary_factor', 0.75],
    ['phi3', 'lm_head_bias', true],
  ])('of %s name %s = %o', (name, field, value) => {
    const error = refusal(name, { [field]: value });
    expect(error).toMatchObject({ code: 'MODEL_UNSUPPORTED', facts: { field } });
    expect(error.message).toContain(field);
  });

  it('name invalid fields of windows', () => {
    const types = ['full_attention', 'sliding_attention'];
    for (const changes of [
      { layer_types: types },
      { layer_types: types.slice(1), use_sliding_window: true },
      { layer_types: 'full_attention' },
      { sliding_window: 0 },
    ]) {
      const error = refusal('qwen2', changes);
      expect(error.code).toBe('MODEL_CONFIG_INVALID');
      expect(error.message).toContain(Object.keys(changes)[0]);
    }
  });
});

describe('the sliding window', () => {
  it.each<[LlamaFamilyName, Fields, (number | undefined)[]]>([
    ['mistral', {}, [4096, 4096]],
    ['mistral', { sliding_window: 6 }, [6, 6]],
    ['mistral', { sliding_window: null }, [undefined, undefined]],
    ['phi3', {}, [undefined, undefined]],
    ['phi3', { sliding_window: 2047 }, [2047, 2047]],
    ['qwen2', { sliding_window: 6 }, [undefined, undefined]],
    ['qwen2', { sliding_window: 6, use_sliding_window: true }, [undefined, undefined]],
    [
      'qwen2',
      { sliding_window: 6, use_sliding_window: true, max_window_layers: 1 },
      [undefined, 6],
    ],
    ['qwen2', { use_sliding_window: true, max_window_layers: 0 }, [4096, 4096]],
    [
      'qwen3',
      { sliding_window: null, use_sliding_window: true, max_window_layers: 0 },
      [undefined, undefined],
    ],
    [
      'qwen3',
      { sliding_window: 6, layer_types: ['full_attention', 'full_attention'] },
      [undefined, undefined],
    ],
    [
      'qwen3',
      {
        sliding_window: 6,
        use_sliding_window: true,
        layer_types: ['sliding_attention', 'full_attention'],
      },
      [6, undefined],
    ],
  ])('of %s with %o concerns the layers that transformers gives it', (name, changes, expected) => {
    expect(windows(parse(name, changes))).toEqual(expected);
  });
});
