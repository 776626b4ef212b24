// Goal: GPT-2 and Llama folders load as models whose sources give the stored values, and save again.
import { mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

import { describe, expect, it } from 'vitest';

import { loadPretrained } from '../../src/checkpoint/load-pretrained.js';
import { saveModelFolder } from '../../src/checkpoint/save-model.js';
import { writeSafetensors, type TensorToWrite } from '../../src/checkpoint/safetensors-writer.js';
import type { ParamSpec } from '../../src/model/block.js';
import { modelFromConfig } from '../../src/model/model-from-config.js';
import { openDescriptorCount, temporaryFolder } from './temporary-folder.js';

const root = temporaryFolder();
let folderCount = 0;

const GPT2 = {
  model_type: 'gpt2',
  vocab_size: 300,
  n_positions: 16,
  n_embd: 8,
  n_layer: 2,
  n_head: 2,
  resid_pdrop: 0,
  embd_pdrop: 0,
  attn_pdrop: 0,
  eos_token_id: 256,
};
const LLAMA = {
  model_type: 'llama',
  vocab_size: 300,
  hidden_size: 8,
  intermediate_size: 12,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  max_position_embeddings: 16,
  rms_norm_eps: 1e-5,
  tie_word_embeddings: false,
  eos_token_id: [7, 8],
};

const logger = { info: () => undefined, warn: () => undefined };

function specsOf(config: object): ParamSpec[] {
  return modelFromConfig(config, { strict: false, logger }).blocks.flatMap(({ owns }) => owns);
}

/** Value of element `index` of the parameter at `order`. */
function valueAt(order: number, index: number): number {
  return order * 1000 + index;
}

function tensorOf(name: string, shape: readonly number[], order: number): TensorToWrite {
  const read = async (offset: number, target: Float32Array): Promise<void> => {
    for (let i = 0; i < target.length; i += 1) target[i] = valueAt(order, offset + i);
  };
  return { name, shape, dtype: 'F32', read };
}

/** A model folder; `rename` gives the name in the file, or undefined to leave the tensor out. */
async function makeFolder(
  config: object,
  rename: (name: string) => string | undefined = (name) => name,
  extras: readonly TensorToWrite[] = [],
): Promise<string> {
  const folder = join(root, String(folderCount++));
  mkdirSync(folder);
  writeFileSync(join(folder, 'config.json'), JSON.stringify(config));
  writeFileSync(join(folder, 'tokenizer.json'), '{"version":"1.0"}');
  const tensors = specsOf(config).flatMap(({ name, shape }, order) => {
    const fileName = rename(name);
    return fileName === undefined ? [] : [tensorOf(fileName, shape, order)];
  });
  await writeSafetensors(join(folder, 'model.safetensors'), [...tensors, ...extras]);
  return folder;
}

async function expectValues(folder: string, config: object): Promise<void> {
  const model = await loadPretrained(folder);
  for (const [order, spec] of specsOf(config).entries()) {
    const source = await model.source(spec);
    expect(source.shape).toEqual(spec.shape);
    const target = new Float32Array(3);
    await source.read(2, target);
    expect([...target]).toEqual([2, 3, 4].map((index) => valueAt(order, index)));
  }
  await model.close();
}

describe('loadPretrained', () => {
  it.each([
    ['gpt2', GPT2],
    ['llama', LLAMA],
  ])('loads every parameter of %s', async (name, config) => {
    const folder = await makeFolder(config);
    await expectValues(folder, config);
    const model = await loadPretrained(`${folder}/`);
    expect(model).toMatchObject({ name, vocabSize: 300, maxPositions: 16, folder, config });
    expect(model.eosTokenId).toBe(name === 'gpt2' ? 256 : 7);
    await model.close();
  });

  it('loads GPT-2 as the hub has it: no prefix, masks, a stored tied head', async () => {
    const folder = await makeFolder(GPT2, (name) => name.replace('transformer.', ''), [
      tensorOf('h.0.attn.bias', [1, 1, 16, 16], 0),
      tensorOf('h.1.attn.masked_bias', [], 0),
      tensorOf('lm_head.weight', [300, 8], 0),
    ]);
    await expectValues(folder, GPT2);
  });

  it('loads Llama with rotary frequencies of older files', async () => {
    const extras = [tensorOf('model.layers.0.self_attn.rotary_emb.inv_freq', [1], 0)];
    await expectValues(await makeFolder(LLAMA, undefined, extras), LLAMA);
  });

  it('lists what does not fit and leaves no file open', async () => {
    const before = openDescriptorCount(root);
    const folder = await makeFolder(
      GPT2,
      (name) => (name.endsWith('ln_f.bias') ? undefined : name),
      [tensorOf('transformer.h.2.ln_1.weight', [8], 0)],
    );
    await expect(loadPretrained(folder)).rejects.toMatchObject({
      code: 'CHECKPOINT_MISMATCH',
      facts: { missingCount: 1, unexpectedCount: 1 },
    });
    expect(openDescriptorCount(root)).toBe(before);
  });

  it('needs the head of an untied model', async () => {
    const folder = await makeFolder(LLAMA, (name) =>
      name === 'lm_head.weight' ? undefined : name,
    );
    await expect(loadPretrained(folder)).rejects.toThrow(/1 missing: "lm_head\.weight"/);
  });

  it('warns of ignored fields, and refuses them when strict', async () => {
    const folder = await makeFolder({ ...GPT2, resid_pdrop: 0.1 });
    const warnings: string[] = [];
    const model = await loadPretrained(folder, {
      logger: { ...logger, warn: (line) => void warnings.push(line) },
    });
    await model.close();
    expect(warnings).toEqual([expect.stringContaining('resid_pdrop')]);
    await expect(loadPretrained(folder, { strictConfig: true })).rejects.toMatchObject({
      code: 'MODEL_UNSUPPORTED',
    });
  });

  it('saves a folder that loads with the same values, also when its own config has gone', async () => {
    const folder = await makeFolder(LLAMA);
    const model = await loadPretrained(folder);
    const params = await Promise.all(
      specsOf(LLAMA).map(async (spec): Promise<TensorToWrite> => {
        const source = await model.source(spec);
        const read = (offset: number, target: Float32Array): Promise<void> =>
          source.read(offset, target);
        return { name: spec.name, shape: spec.shape, dtype: 'F32', read };
      }),
    );
    rmSync(join(folder, 'config.json'));
    const saved = join(root, 'saved');
    await saveModelFolder({
      folder: saved,
      mode: 'replace',
      params,
      writeCompanions: (target) => model.writeCompanions(target),
    });
    await model.close();
    expect(readdirSync(saved).sort()).toEqual([
      'config.json',
      'model.safetensors',
      'tokenizer.json',
    ]);
    const config: unknown = JSON.parse(readFileSync(join(saved, 'config.json'), 'utf8'));
    expect(config).toEqual({ ...LLAMA, torch_dtype: 'float32' });
    await expectValues(saved, LLAMA);
  });
});
