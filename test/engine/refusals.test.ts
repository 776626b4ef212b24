// Goal: what an engine cannot work with is refused by name, and harms nothing.
import { mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { loadPretrained } from '../../src/checkpoint/load-pretrained.js';
import { Engine } from '../../src/engine/engine.js';
import type { EngineOptions } from '../../src/engine/engine-options.js';
import type { MicroBatch } from '../../src/model/block.js';
import { languageModelBatch } from '../../src/model/language-model-batch.js';
import { fixtureFolder, withFolder } from './run-engine.js';
import { ROWS, WIDTH, smallBatch, smallModel } from './small-model.js';

async function small(options: Partial<EngineOptions> = {}): Promise<Engine> {
  return Engine.create({
    model: smallModel(),
    exampleBatch: smallBatch(),
    device: 'cpu',
    deviceMemory: '4MiB',
    hostMemory: '16MiB',
    optimizerWorkers: 1,
    ...options,
  });
}

const ON_NVME = { offloadParam: 'nvme', offloadOptimizer: 'nvme' } as const;

describe('an option', () => {
  it.each<[string, Partial<EngineOptions>]>([
    ['gradientAccumulationSteps', { gradientAccumulationSteps: 0 }],
    ['gradientAccumulationSteps', { gradientAccumulationSteps: 1.5 }],
    ['optimizerWorkers', { optimizerWorkers: 0 }],
    ['learningRate', { optimizer: { learningRate: Number.NaN } }],
    ['beta2', { optimizer: { beta2: 1 } }],
    ['epsilon', { optimizer: { epsilon: -1 } }],
    ['weightDecay', { optimizer: { weightDecay: Number.NaN } }],
    ['maxGradNorm', { optimizer: { maxGradNorm: -1 } }],
    ['throttles.upload', { execution: { throttles: { upload: 0 } } }],
    ['dtype', { dtype: 'float16' as 'float32' }],
    ['microBatchOrder', { microBatchOrder: 'sideways' as 'auto' }],
    ['offloadParam', { offloadParam: 'disk' as 'nvme' }],
    ['seed', { seed: 0.5 }],
    ['nvmePath', { nvmePath: '' }],
    ['runId', { runId: '' }],
    ['runId', { runId: '..' }],
    ['runId', { runId: 'a/b' }],
    ['runId', { runId: '/tmp' }],
  ])('%s with a value that cannot be is refused by its name', async (option, options) => {
    await expect(small(options)).rejects.toMatchObject({
      code: 'CONFIG_INVALID',
      facts: { option },
    });
  });

  it('learningRate of a step is refused before weights become NaN', async () => {
    const engine = await small();
    await expect(engine.step([smallBatch()], { learningRate: Number.NaN })).rejects.toMatchObject({
      code: 'CONFIG_INVALID',
    });
    await engine.close();
  });
});

describe('a micro-batch', () => {
  const { x, y } = smallBatch().fields;
  const wide = { data: new Float32Array(2 * ROWS * WIDTH), shape: [2 * ROWS, WIDTH] };
  it.each<[string, MicroBatch]>([
    ['larger than the example', { fields: { x: wide, y: wide }, weight: 1 }],
    ['that lacks a field', { fields: { x: x! }, weight: 1 }],
    ['with a field too many', { fields: { x: x!, y: y!, documents: y! }, weight: 1 }],
    ['of another rank', { fields: { x: x!, y: { ...y!, shape: [ROWS * WIDTH] } }, weight: 1 }],
    ['whose data are short', { fields: { x: x!, y: { ...y!, shape: [1, WIDTH] } }, weight: 1 }],
    ['without a weight', { fields: { x: x!, y: y! }, weight: Number.NaN }],
  ])('%s is refused by step and evaluate', async (_, batch) => {
    for (const call of ['step', 'evaluate'] as const) {
      const engine = await small();
      await expect(engine[call]([batch])).rejects.toMatchObject({ code: 'DATA_INVALID' });
      await engine.close();
    }
  });

  it('without loss terms counts for nothing in an evaluation; nothing but such is refused', async () => {
    const engine = await small();
    const alone = await engine.evaluate([smallBatch()]);
    const masked = { ...smallBatch(1e3), weight: 0 };
    expect(await engine.evaluate([masked, smallBatch()])).toEqual(alone);
    await expect(engine.evaluate([])).rejects.toMatchObject({ code: 'DATA_EMPTY' });
    await engine.close();
  });
});

it('an unknown parameter is refused, and the engine goes on', async () => {
  const engine = await small();
  await expect(engine.readParameter('nope')).rejects.toMatchObject({ code: 'USAGE_INVALID' });
  await expect(engine.readGradient('nope')).rejects.toMatchObject({ code: 'USAGE_INVALID' });
  expect((await engine.step([smallBatch()])).step).toBe(1);
  await engine.close();
});

it('a sequence longer than a sliding window is refused when the engine is made', async () => {
  const model = await loadPretrained(fixtureFolder('mistral-tiny'));
  const exampleBatch = (length: number): MicroBatch => {
    const tokens = new Int32Array(length);
    return languageModelBatch({ inputIds: tokens, labels: tokens, batchSize: 1, length });
  };
  await expect(small({ model, exampleBatch: exampleBatch(18) })).rejects.toMatchObject({
    code: 'MODEL_UNSUPPORTED',
    facts: { field: 'sliding_window', limit: 17, length: 18 },
  });
  const engine = await small({ model, exampleBatch: exampleBatch(17) });
  await engine.close();
  await model.close();
});

describe('close', () => {
  it('lets a step under way end, and resolves when all is gone, however often it is called', async () => {
    await withFolder(async (nvmePath) => {
      const engine = await small({ ...ON_NVME, nvmePath });
      const step = engine.step([smallBatch()]);
      const first = engine.close();
      await engine.close();
      expect(readdirSync(nvmePath)).toEqual([]);
      expect(Number.isFinite((await step).loss)).toBe(true);
      await (
        await step
      ).committed;
      await first;
    });
  });

  it("leaves files in the run's folder that are not the run's", async () => {
    await withFolder(async (nvmePath) => {
      mkdirSync(join(nvmePath, 'mine'));
      writeFileSync(join(nvmePath, 'mine', 'thesis.txt'), 'years');
      const engine = await small({ ...ON_NVME, nvmePath, runId: 'mine' });
      await engine.step([smallBatch()]);
      await engine.close();
      expect(readdirSync(join(nvmePath, 'mine'))).toEqual(['thesis.txt']);
    });
  });
});
