// Goal: init makes a loadable folder that depends on config and seed only, or makes nothing.
import { mkdirSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

import { describe, expect, it } from 'vitest';

import { initCheckpoint } from '../../src/checkpoint/init-checkpoint.js';
import { loadPretrained } from '../../src/checkpoint/load-pretrained.js';
import { temporaryFolder } from './temporary-folder.js';

const root = temporaryFolder();

const GPT2 = {
  model_type: 'gpt2',
  vocab_size: 260,
  n_positions: 32,
  n_embd: 64,
  n_layer: 2,
  n_head: 2,
  resid_pdrop: 0,
  embd_pdrop: 0,
  attn_pdrop: 0,
  initializer_range: 0.05,
};

function configFile(name: string, changes: object = {}): string {
  const path = join(root, `${name}.json`);
  writeFileSync(path, JSON.stringify({ ...GPT2, ...changes }));
  return path;
}

const configPath = configFile('gpt2');

function weights(folder: string): Buffer {
  return readFileSync(join(folder, 'model.safetensors'));
}

function json(...path: string[]): unknown {
  return JSON.parse(readFileSync(join(...path), 'utf8'));
}

/** All values of one parameter of the model in `folder`. */
async function values(folder: string, name: string): Promise<Float32Array> {
  const model = await loadPretrained(folder);
  const spec = model.blocks.flatMap(({ owns }) => owns).find((owned) => owned.name === name)!;
  const target = new Float32Array(spec.shape.reduce((a, b) => a * b, 1));
  await (await model.source(spec)).read(0, target);
  await model.close();
  return target;
}

function standardDeviation(sample: Float32Array): number {
  const mean = sample.reduce((a, b) => a + b, 0) / sample.length;
  return Math.sqrt(sample.reduce((a, b) => a + (b - mean) ** 2, 0) / sample.length);
}

const LLAMA_LIKE = {
  vocab_size: 260,
  hidden_size: 24,
  intermediate_size: 32,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  head_dim: 8,
};

describe('initCheckpoint of a family', () => {
  it.each<[string, object]>([
    ['llama', { attention_bias: true, mlp_bias: true, tie_word_embeddings: true }],
    ['mistral', { sliding_window: 64 }],
    ['qwen2', { rope_theta: 1e6, rope_scaling: { type: 'yarn', factor: 4 } }],
    ['qwen3', { tie_word_embeddings: true }],
    ['phi3', {}],
  ])(
    '%s makes a folder that loads and has zero biases and norms of ones',
    async (name, changes) => {
      const path = join(root, `${name}.json`);
      const config = { ...LLAMA_LIKE, model_type: name, ...changes };
      writeFileSync(path, JSON.stringify(config));
      const outputFolder = join(root, `family-${name}`);
      await initCheckpoint({ configPath: path, outputFolder, seed: 5, strictConfig: true });
      expect(json(outputFolder, 'config.json')).toMatchObject(config);
      const model = await loadPretrained(outputFolder, { strictConfig: true });
      expect(model.name).toBe(name);
      for (const spec of model.blocks.flatMap(({ owns }) => owns)) {
        const drawn = new Float32Array(spec.shape.reduce((a, b) => a * b, 1));
        await (await model.source(spec)).read(0, drawn);
        const deviation = standardDeviation(drawn);
        if (spec.shape.length === 1) {
          const value = spec.name.endsWith('.bias') ? 0 : 1;
          expect(
            drawn.every((each) => each === value),
            spec.name,
          ).toBe(true);
        } else {
          expect(Math.abs(deviation / 0.02 - 1), spec.name).toBeLessThan(0.15);
        }
      }
      await model.close();
    },
  );
});

describe('initCheckpoint', () => {
  it('makes a folder that loads, with config, tokenizer and generation files', async () => {
    const outputFolder = join(root, 'made');
    const made = await initCheckpoint({ configPath, outputFolder, seed: 1 });
    expect(made.folder).toBe(outputFolder);
    expect(readdirSync(outputFolder).sort()).toEqual([
      'config.json',
      'generation_config.json',
      'model.safetensors',
      'tokenizer.json',
      'tokenizer_config.json',
    ]);
    const ids = { bos_token_id: 256, eos_token_id: 256 };
    expect(json(outputFolder, 'config.json')).toEqual({ ...GPT2, ...ids, torch_dtype: 'float32' });
    expect(json(outputFolder, 'generation_config.json')).toMatchObject(ids);
    const model = await loadPretrained(outputFolder, { strictConfig: true });
    const owned = model.blocks.flatMap(({ owns }) => owns);
    const count = owned.reduce((sum, { shape }) => sum + shape.reduce((a, b) => a * b, 1), 0);
    expect(made.parameterCount).toBe(count);
    await model.close();
  });

  it('draws as transformers does: normals, scaled residual projections, zeros and ones', async () => {
    const outputFolder = join(root, 'drawn');
    await initCheckpoint({ configPath, outputFolder, seed: 3 });
    const table = await values(outputFolder, 'transformer.wte.weight');
    expect(standardDeviation(table) / 0.05).toBeCloseTo(1, 1);
    const projection = await values(outputFolder, 'transformer.h.0.mlp.c_proj.weight');
    expect(standardDeviation(projection) / (0.05 / Math.sqrt(4))).toBeCloseTo(1, 1);
    const scale = await values(outputFolder, 'transformer.ln_f.weight');
    expect(scale.every((value) => value === 1)).toBe(true);
    const bias = await values(outputFolder, 'transformer.h.1.attn.c_attn.bias');
    expect(bias.every((value) => value === 0)).toBe(true);
  });

  it('gives equal files for equal seeds and others for other seeds', async () => {
    const [a, b, c] = ['a', 'b', 'c'].map((name) => join(root, name)) as [string, string, string];
    await initCheckpoint({ configPath, outputFolder: a, seed: 5 });
    await initCheckpoint({ configPath, outputFolder: b, seed: 5 });
    await initCheckpoint({ configPath, outputFolder: c, seed: 6 });
    expect(weights(a).equals(weights(b))).toBe(true);
    expect(weights(a).equals(weights(c))).toBe(false);
  });

  it('writes bfloat16 as the nearest values of the float32 file', async () => {
    const [wide, narrow] = [join(root, 'wide'), join(root, 'narrow')];
    await initCheckpoint({ configPath, outputFolder: wide, seed: 5 });
    await initCheckpoint({ configPath, outputFolder: narrow, seed: 5, dtype: 'bfloat16' });
    expect(json(narrow, 'config.json')).toMatchObject({ torch_dtype: 'bfloat16' });
    const name = 'transformer.h.1.mlp.c_fc.weight';
    const [exact, rounded] = [await values(wide, name), await values(narrow, name)];
    expect(rounded.every((value, i) => Math.abs(value - exact[i]!) <= Math.abs(value) / 256)).toBe(
      true,
    );
    expect(new Uint32Array(rounded.buffer).every((word) => (word & 0xffff) === 0)).toBe(true);
    expect(rounded.some((value) => value !== 0)).toBe(true);
  });

  it('fills an empty folder and refuses one that holds anything', async () => {
    const outputFolder = join(root, 'empty');
    mkdirSync(outputFolder);
    await initCheckpoint({ configPath, outputFolder, seed: 1 });
    const earlier = weights(outputFolder);
    await expect(initCheckpoint({ configPath, outputFolder, seed: 2 })).rejects.toMatchObject({
      code: 'PATH_UNWRITABLE',
    });
    expect(weights(outputFolder).equals(earlier)).toBe(true);
  });

  const refusals = [
    ['a vocabulary smaller than the tokenizer', { vocab_size: 256 }, 'MODEL_CONFIG_INVALID'],
    ['a model type that is not supported', { model_type: 'bert' }, 'MODEL_UNSUPPORTED'],
    ['a missing size', { n_embd: 'x' }, 'MODEL_CONFIG_INVALID'],
  ] as const;

  it.each(refusals)('refuses %s and makes nothing', async (name, changes, code) => {
    const outputFolder = join(root, `refused ${name}`);
    await expect(
      initCheckpoint({ configPath: configFile(name, changes), outputFolder, seed: 1 }),
    ).rejects.toMatchObject({ code });
    expect(readdirSync(root).filter((entry) => entry.includes(`refused ${name}`))).toEqual([]);
  });

  it('refuses a missing config and a path below a file', async () => {
    await expect(
      initCheckpoint({ configPath: join(root, 'none'), outputFolder: join(root, 'x'), seed: 1 }),
    ).rejects.toMatchObject({ code: 'MODEL_NOT_FOUND' });
    await expect(
      initCheckpoint({ configPath, outputFolder: join(configPath, 'x'), seed: 1 }),
    ).rejects.toMatchObject({ code: 'PATH_UNWRITABLE' });
  });
});
