// Goal: an engine that goes on from a checkpoint is, bit for bit, the one that never stopped,
// wherever the states lived before and live now.
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { loadPretrained } from '../../src/checkpoint/load-pretrained.js';
import { OptimizerStates } from '../../src/checkpoint/optimizer-states.js';
import { Engine } from '../../src/engine/engine.js';
import type { EngineOptions } from '../../src/engine/engine-options.js';
import { fixtureFolder, readReference, toMicroBatch, withFolder } from './run-engine.js';

const MODEL = 'gpt2-tiny';
const BATCH = toMicroBatch(readReference(MODEL));

type Options = Omit<EngineOptions, 'model' | 'exampleBatch' | 'initialState'>;

const BASE: Options = {
  deviceMemory: '4MiB',
  hostMemory: '8MiB',
  optimizerWorkers: 1,
  optimizer: { learningRate: 1e-3, weightDecay: 0.1 },
};
const HOST: Options = { ...BASE, offloadParam: 'cpu', offloadOptimizer: 'cpu' };

/** Everything on NVMe, in shards of 4096 elements, updated by two workers. */
const nvme = (folder: string): Options => ({
  ...BASE,
  nvmePath: join(folder, 'nvme'),
  offloadParam: 'nvme',
  offloadOptimizer: 'nvme',
  subGroupSize: 4096,
  optimizerWorkers: 2,
});

async function steps(engine: Engine, count: number): Promise<number[]> {
  const losses: number[] = [];
  for (let step = 0; step < count; step += 1) {
    const { loss, committed } = await engine.step([BATCH]);
    await committed;
    losses.push(loss);
  }
  return losses;
}

/** Runs `body` on an engine that starts from `from`, a checkpoint of `step` steps, or afresh. */
async function withEngine<T>(
  options: Options,
  from: { folder: string; step: number } | undefined,
  body: (engine: Engine) => Promise<T>,
): Promise<T> {
  const model = await loadPretrained(from?.folder ?? fixtureFolder(MODEL));
  const { dtype = 'float32' } = options;
  const states =
    from === undefined
      ? undefined
      : await OptimizerStates.open(from.folder, model.blocks, from.step, dtype);
  const engine = await Engine.create({
    ...options,
    model,
    exampleBatch: BATCH,
    ...(states === undefined ? {} : { initialState: states }),
  });
  try {
    return await body(engine);
  } finally {
    await engine.close();
    await states?.close();
    await model.close();
  }
}

async function weightsOf(engine: Engine): Promise<Record<string, Float32Array>> {
  const weights: Record<string, Float32Array> = {};
  for (const name of ['transformer.wte.weight', 'transformer.h.0.attn.c_attn.weight']) {
    weights[name] = await engine.readParameter(name);
  }
  return weights;
}

describe.each(['float32', 'bfloat16'] as const)('%s', (dtype) => {
  it.each([
    ['host', 'NVMe', () => HOST, nvme],
    ['NVMe', 'host', nvme, () => HOST],
  ])('saved on %s goes on exactly on %s', async (_from, _to, before, after) => {
    await withFolder(async (folder) => {
      const saved = join(folder, 'checkpoint-3');
      const whole = await withEngine({ ...before(folder), dtype }, undefined, async (engine) => {
        await steps(engine, 3);
        await engine.save(saved, { optimizer: true });
        return { losses: await steps(engine, 3), weights: await weightsOf(engine) };
      });
      const from = { folder: saved, step: 3 };
      const resumed = await withEngine({ ...after(folder), dtype }, from, async (engine) => {
        expect(engine.stepCount).toBe(3);
        const losses = await steps(engine, 3);
        return { losses, weights: await weightsOf(engine) };
      });
      expect(resumed).toEqual(whole);
    });
  });
});

it('differs from an engine that starts at the same weights without moments', async () => {
  await withFolder(async (folder) => {
    const saved = join(folder, 'checkpoint-2');
    const whole = await withEngine(HOST, undefined, async (engine) => {
      await steps(engine, 2);
      await engine.save(saved, { optimizer: true });
      return steps(engine, 2);
    });
    const model = await loadPretrained(saved);
    const engine = await Engine.create({ ...HOST, model, exampleBatch: BATCH });
    const fresh = await steps(engine, 2);
    await engine.close();
    await model.close();
    expect(fresh[0]).toBe(whole[0]);
    expect(fresh[1]).not.toBe(whole[1]);
  });
});

it('refuses states of another dtype, and another model\u2019s, by name', async () => {
  await withFolder(async (folder) => {
    const saved = join(folder, 'checkpoint-1');
    const bfloat16: Options = { ...HOST, dtype: 'bfloat16' };
    await withEngine(bfloat16, undefined, async (engine) => {
      await steps(engine, 1);
      await engine.save(saved, { optimizer: true });
    });
    const model = await loadPretrained(saved);
    const states = await OptimizerStates.open(saved, model.blocks, 1, 'bfloat16');
    const create = Engine.create({ ...HOST, model, exampleBatch: BATCH, initialState: states });
    await expect(create).rejects.toMatchObject({
      code: 'CHECKPOINT_MISMATCH',
      message: expect.stringContaining('bfloat16') as string,
    });
    await states.close();
    const open = OptimizerStates.open(saved, model.blocks, 1, 'float32');
    await expect(open).rejects.toMatchObject({
      code: 'CHECKPOINT_MISMATCH',
      message: expect.stringContaining('master_lo') as string,
    });
    await model.close();
    const other = await loadPretrained(fixtureFolder('llama-tiny'));
    const foreign = OptimizerStates.open(saved, other.blocks, 1, 'bfloat16');
    await expect(foreign).rejects.toMatchObject({ code: 'CHECKPOINT_MISMATCH' });
    await other.close();
  });
});
