// Goal: what the engine saves is what transformers has loaded with equal logits, wherever the
// weights lived.
import { createHash } from 'node:crypto';
import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { loadPretrained } from '../../src/checkpoint/load-pretrained.js';
import { SafetensorsFile } from '../../src/checkpoint/safetensors-reader.js';
import { Engine } from '../../src/engine/engine.js';
import { FIXTURES } from '../model/fixture-model.js';
import { fixtureFolder, readReference, toMicroBatch, withFolder } from './run-engine.js';

const OPTIONS = { deviceMemory: '4MiB', hostMemory: '8MiB', optimizerWorkers: 1 } as const;

/** Hashes of weights that transformers loaded with equal logits (fixtures/verify_saved.py). */
const LOADED = JSON.parse(readFileSync(fixtureFolder('references/saved.json'), 'utf8')) as Record<
  string,
  { sha256: string }
>;

/** Of one file, or of several and their index in the order of their names. */
function hashOfWeights(folder: string): string {
  const hash = createHash('sha256');
  for (const name of readdirSync(folder).sort()) {
    if (name.startsWith('model')) hash.update(readFileSync(join(folder, name)));
  }
  return hash.digest('hex');
}

describe.each(FIXTURES)('%s', (name) => {
  it('is saved from NVMe as the weights that transformers loaded', async () => {
    await withFolder(async (folder) => {
      const model = await loadPretrained(fixtureFolder(name));
      const engine = await Engine.create({
        ...OPTIONS,
        model,
        exampleBatch: toMicroBatch(readReference(name)),
        nvmePath: folder,
        offloadParam: 'nvme',
        offloadOptimizer: 'nvme',
        subGroupSize: 4096,
      });
      await engine.save(join(folder, 'saved'));
      await engine.close();
      await model.close();
      expect(hashOfWeights(join(folder, 'saved'))).toBe(LOADED[name]?.sha256);
      const again = await loadPretrained(join(folder, 'saved'));
      expect(again.config['model_type']).toBe(model.config['model_type']);
      await again.close();
    });
  });
});

it('saves bfloat16 weights as compute reads them, and states whose join is the master', async () => {
  await withFolder(async (folder) => {
    const name = 'gpt2-tiny';
    const batch = toMicroBatch(readReference(name));
    const model = await loadPretrained(fixtureFolder(name));
    const engine = await Engine.create({
      ...OPTIONS,
      model,
      exampleBatch: batch,
      dtype: 'bfloat16',
      optimizer: { learningRate: 1e-3 },
    });
    await engine.step([batch]);
    await engine.save(folder, { mode: 'into', optimizer: true });
    const param = 'transformer.wte.weight';
    const master = await engine.readParameter(param);
    await engine.close();
    await model.close();
    const weights = await SafetensorsFile.open(join(folder, 'model.safetensors'));
    const states = await SafetensorsFile.open(join(folder, 'optimizer.safetensors'));
    expect(weights.entry(param)?.dtype).toBe('BF16');
    const high = new Uint16Array(master.length);
    const low = new Uint16Array(master.length);
    await weights.readBits(weights.entry(param)!, 0, high);
    await states.readBits(states.entry(`${param}.master_lo`)!, 0, low);
    const bits = new Uint32Array(master.buffer);
    const joined = bits.map((_, i) => (high[i]! << 16) + ((low[i]! << 16) >> 16));
    expect(joined).toEqual(bits);
    const moments = new Float32Array(master.length);
    await states.readElements(states.entry(`${param}.exp_avg_sq`)!, 0, moments);
    expect(moments.some((value) => value > 0)).toBe(true);
    await weights.close();
    await states.close();
    expect(readFileSync(join(folder, 'config.json'), 'utf8')).toContain('bfloat16');
  });
});

it('saves shards that transformers loaded with equal logits, and trains on from them', async () => {
  await withFolder(async (folder) => {
    const name = 'llama-tiny';
    const exampleBatch = toMicroBatch(readReference(name));
    const model = await loadPretrained(fixtureFolder(name));
    const engine = await Engine.create({ ...OPTIONS, model, exampleBatch });
    await engine.save(folder, { mode: 'into', optimizer: true, maxShardSize: 40_000 });
    const norm = await engine.readParameter('model.norm.weight');
    await expect(engine.save(folder, { maxShardSize: 0.5 })).rejects.toMatchObject({
      code: 'CONFIG_INVALID',
    });
    await engine.close();
    await model.close();
    const names = readdirSync(folder);
    expect(names).toContain('model-00004-of-00004.safetensors');
    expect(names).toContain('optimizer.safetensors.index.json');
    expect(names).not.toContain('model.safetensors');
    expect(hashOfWeights(folder)).toBe(LOADED['llama-tiny-sharded']?.sha256);
    const again = await loadPretrained(folder);
    const engineAgain = await Engine.create({ ...OPTIONS, model: again, exampleBatch });
    expect(await engineAgain.readParameter('model.norm.weight')).toEqual(norm);
    await engineAgain.close();
    await again.close();
  });
});
