// Goal: rotary frequencies and angles are transformers' own, and lengths beyond them are refused.
import { readFileSync } from 'node:fs';
import * as tf from '@tensorflow/tfjs-core';
import { describe, expect, it } from 'vitest';
import { silentLogger } from '../../core/logger.js';
import { parseLlamaConfig, type LlamaConfig } from '../../src/model/llama-config.js';
import { languageModelBatch } from '../../src/model/language-model-batch.js';
import { modelFromConfig } from '../../src/model/model-from-config.js';
import { rotaryTable } from '../../src/model/ops/rotary.js';
import { useCpuBackend } from '../device/tfjs-setup.js';
import { runChain } from './block-chain.js';

type Fields = Record<string, unknown>;

/** What transformers computes (fixtures/make_models.py). */
interface Recorded {
  readonly config: Fields & { readonly rope_parameters: Fields };
  readonly inverse_frequencies: readonly number[];
  readonly attention_scaling: number;
  readonly positions: readonly number[];
  readonly cos: readonly (readonly number[])[];
  readonly sin: readonly (readonly number[])[];
}

const RECORDED = JSON.parse(
  readFileSync(new URL('../../fixtures/references/ropes.json', import.meta.url), 'utf8'),
) as readonly Recorded[];

const SIZES: Fields = {
  vocab_size: 11,
  hidden_size: 8,
  intermediate_size: 10,
  num_hidden_layers: 1,
  num_attention_heads: 2,
};

function parse(fields: Fields): LlamaConfig {
  return parseLlamaConfig('llama', { ...SIZES, ...fields }, { strict: true, logger: silentLogger });
}

useCpuBackend();

describe.each(RECORDED)('rope $config.rope_parameters', (recorded) => {
  const { rope_theta: theta, ...scaling } = recorded.config.rope_parameters;
  const { rope } = parse(recorded.config);

  it('has the frequencies of transformers to one unit in the last place', () => {
    expect(rope.inverseFrequencies).toHaveLength(recorded.inverse_frequencies.length);
    for (const [i, expected] of recorded.inverse_frequencies.entries()) {
      const error = Math.abs(rope.inverseFrequencies[i]! / expected - 1);
      expect(error, `pair ${i}`).toBeLessThan(1.2e-7);
    }
    expect(Math.abs(rope.attentionScaling / recorded.attention_scaling - 1)).toBeLessThan(1e-15);
  });

  it('has the cosines and sines of transformers at long positions', () => {
    const table = rotaryTable({ length: 4096 }, rope);
    const values = table.dataSync();
    table.dispose();
    const half = rope.inverseFrequencies.length;
    for (const [row, position] of recorded.positions.entries()) {
      for (let i = 0; i < half; i += 1) {
        // A frequency that differs in its last bit, and the rounding of angles, move that much.
        const tolerance = 1.5e-7 + 2.4e-7 * position * recorded.inverse_frequencies[i]!;
        const [cos, sin] = [values[position * half + i]!, values[(4096 + position) * half + i]!];
        expect(Math.abs(cos - recorded.cos[row]![i]!), `cos ${position}`).toBeLessThan(tolerance);
        expect(Math.abs(sin - recorded.sin[row]![i]!), `sin ${position}`).toBeLessThan(tolerance);
      }
    }
  });

  it('is the same in the spelling of transformers 4', () => {
    const { rope_type: type, ...numbers } = scaling;
    const rope_scaling = { type, ...numbers };
    const old = { ...recorded.config, rope_parameters: null, rope_theta: theta, rope_scaling };
    expect(parse(old).rope).toEqual(rope);
    expect(parse({ ...old, rope_scaling: scaling }).rope).toEqual(rope);
  });
});

describe('original_max_position_embeddings', () => {
  const yarn = { rope_type: 'yarn', factor: 4, original_max_position_embeddings: 100 };
  const key = (fields: Fields): string => parse(fields).rope.key;

  it('beside the description goes before the one in it, and the trained length comes last', () => {
    const beside = { original_max_position_embeddings: 50, rope_scaling: yarn };
    expect(key(beside)).toContain('originalPositions=50');
    expect(key({ rope_scaling: yarn })).toContain('originalPositions=100');
    const without = { ...yarn, original_max_position_embeddings: null };
    const trained = { max_position_embeddings: 77, rope_scaling: without };
    expect(key(trained)).toContain('originalPositions=77');
  });

  it('gives the factor where that is null', () => {
    const scaling = { ...yarn, factor: null };
    expect(key({ rope_scaling: scaling, max_position_embeddings: 300 })).toContain('factor=3,');
  });
});

describe('a sequence beyond a limit', () => {
  const DYNAMIC = {
    model_type: 'llama',
    max_position_embeddings: 6,
    rope_scaling: { rope_type: 'dynamic', factor: 2 },
  };
  const WINDOW = { model_type: 'mistral', num_key_value_heads: 2, sliding_window: 6 };

  function run(config: Fields, lengths: readonly number[], packed = true): void {
    const options = { strict: true, logger: silentLogger };
    const { blocks } = modelFromConfig({ ...SIZES, ...config }, options);
    const specs = blocks.flatMap((block) => block.owns);
    const params = Object.fromEntries(specs.map(({ name, shape }) => [name, tf.ones([...shape])]));
    const ids = lengths.flatMap((length) => Array<number>(length).fill(1));
    const batch = languageModelBatch({
      inputIds: ids,
      labels: ids,
      batchSize: 1,
      length: ids.length,
      ...(packed && {
        documents: lengths.flatMap((length, index) => Array<number>(length).fill(index)),
        positionIds: lengths.flatMap((length) => Array.from({ length }, (_, t) => t)),
      }),
    });
    try {
      runChain(blocks, params, batch, 1);
    } finally {
      tf.dispose(params);
    }
  }

  it.each([
    ['sliding_window', WINDOW],
    ['max_position_embeddings', DYNAMIC],
  ])('is refused with %s and both lengths', (field, config) => {
    expect(() => run(config, [6], false)).not.toThrow();
    expect(() => run(config, [6, 6, 1])).not.toThrow();
    for (const attempt of [
      () => run(config, [7], false),
      () => run(config, [1, 7]),
      () => run(config, [6, 1], false),
    ]) {
      expect(attempt).toThrow(
        expect.objectContaining({
          code: 'MODEL_UNSUPPORTED',
          message: expect.stringMatching(new RegExp(`${field}.* 6.*\\b7 tokens`)) as string,
        }),
      );
    }
  });
});
