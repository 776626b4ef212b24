// Goal: greedy continuations are transformers' own, wherever weights and cache live.
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { loadPretrained } from '../../src/checkpoint/load-pretrained.js';
import { InferenceEngine } from '../../src/engine/inference-engine.js';
import type { InferenceOptions } from '../../src/engine/inference-options.js';
import { generateTokens } from '../../src/generate/generate-tokens.js';
import type { GenerationSettings } from '../../src/generate/generation-settings.js';
import { DEVICES, fixtureFolder, withFolder } from '../engine/run-engine.js';

interface Greedy {
  readonly ids: readonly number[];
  readonly penalised_ids: readonly number[];
}

const { prompt, greedy } = JSON.parse(
  readFileSync(fixtureFolder('generate/generate.json'), 'utf8'),
) as { readonly prompt: readonly number[]; readonly greedy: Readonly<Record<string, Greedy>> };

const SETTINGS: GenerationSettings = {
  maxNewTokens: 32,
  doSample: false,
  temperature: 1,
  topK: 50,
  topP: 1,
  repetitionPenalty: 1,
  seed: 0,
  eosTokenIds: [],
};

const MAX_LENGTH = prompt.length + SETTINGS.maxNewTokens;

async function continued(
  name: string,
  options: Omit<InferenceOptions, 'model'>,
  settings: Partial<GenerationSettings> = {},
) {
  const model = await loadPretrained(fixtureFolder(name));
  const engine = await InferenceEngine.create({ ...options, model, maxLength: MAX_LENGTH });
  try {
    const all = { ...SETTINGS, ...settings };
    const tokens = generateTokens(engine, prompt, all, { maxLength: MAX_LENGTH });
    const ids: number[] = [];
    for (;;) {
      const step = await tokens.next();
      if (step.done === true) return { ids, reason: step.value };
      ids.push(step.value);
    }
  } finally {
    await engine.close();
    await model.close();
  }
}

describe.each(DEVICES)('on %s', (device) => {
  it.each(Object.keys(greedy))('%s continues as in transformers', async (name) => {
    const { ids, penalised_ids: penalised } = greedy[name]!;
    expect(await continued(name, { device })).toEqual({ ids, reason: 'length' });
    const { ids: others } = await continued(name, { device }, { repetitionPenalty: 1.7 });
    expect(others).toEqual(penalised);
  });
});

it('draws the same tokens from NVMe as from the device', async () => {
  await withFolder(async (nvmePath) => {
    const drawn = { doSample: true, seed: 9 };
    const near = await continued('llama-tiny', { offloadParam: 'none' }, drawn);
    const far = await continued('llama-tiny', { offloadParam: 'nvme', nvmePath }, drawn);
    expect(far).toEqual(near);
    expect(new Set(near.ids).size).toBeGreaterThan(10);
  });
});

it('ends before any of several end tokens', async () => {
  const { ids } = greedy['llama-tiny']!;
  const end = ids[5]!;
  const before = ids.slice(0, ids.indexOf(end));
  const result = await continued('llama-tiny', {}, { eosTokenIds: [-1, end] });
  expect(result).toEqual({ ids: before, reason: 'eos' });
});
