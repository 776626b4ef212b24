// Goal: an inference engine gives the training engine's losses and the whole sequence's logits, in
// every bit and at every placement, under budgets in which nothing could be trained.
import * as tf from '@tensorflow/tfjs-core';
import { readdirSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { loadPretrained } from '../../src/checkpoint/load-pretrained.js';
import { Engine } from '../../src/engine/engine.js';
import { InferenceEngine } from '../../src/engine/inference-engine.js';
import type { InferenceOptions } from '../../src/engine/inference-options.js';
import { PART_TOKENS } from '../../src/engine/sequence-runner.js';
import type { Model } from '../../src/model/block.js';
import { isCoded } from '../../core/errors.js';
import { silentLogger } from '../../core/logger.js';
import { defineModel } from '../../src/model/define-model.js';
import { languageModelBatch } from '../../src/model/language-model-batch.js';
import { modelFromConfig } from '../../src/model/model-from-config.js';
import { loadFixture, relativeError } from '../model/fixture-model.js';
import {
  DEVICES,
  fixtureFolder,
  largestOf,
  readReference,
  toMicroBatch,
  withFolder,
} from './run-engine.js';
import { smallBatch, smallModel } from './small-model.js';

const FIXTURES = ['gpt2-tiny', 'llama-tiny', 'llama-tiny-untied'] as const;

const EVALUATED = [
  ['gpt2-tiny', 'float32'],
  ['gpt2-tiny', 'bfloat16'],
  ['llama-tiny-untied', 'float32'],
  ['llama-tiny-untied', 'bfloat16'],
] as const;

async function withModel<T>(name: string, body: (model: Model) => Promise<T>): Promise<T> {
  const model = await loadPretrained(fixtureFolder(name));
  try {
    return await body(model);
  } finally {
    await model.close();
  }
}

async function withEngine<T>(
  options: InferenceOptions,
  body: (engine: InferenceEngine) => Promise<T>,
): Promise<T> {
  const engine = await InferenceEngine.create(options);
  try {
    return await body(engine);
  } finally {
    await engine.close();
  }
}

const batchesOf = (name: string) =>
  readReference(name).training.micro_batches.flat().map(toMicroBatch);

const lengthOf = (name: string) => readReference(name).input_ids[0]!.length;

/** Logits after each token of the reference's first row, [T][V]; the first three come at once. */
async function logitsOf(name: string, options: Omit<InferenceOptions, 'model'>) {
  const ids = readReference(name).input_ids[0]!;
  return withModel(name, (model) =>
    withEngine({ ...options, model, maxLength: ids.length }, async (engine) => {
      const rows = [(await engine.append(ids.slice(0, 3))).slice()];
      for (const id of ids.slice(3)) rows.push((await engine.append([id])).slice());
      return { rows, plan: engine.plan, moved: engine.bytesMoved };
    }),
  );
}

describe.each(DEVICES)('evaluation on %s', (device) => {
  // Plain JavaScript is slow, and has no code of its own here.
  const cases = device === 'cpu' ? [['gpt2-tiny', 'bfloat16'] as const] : EVALUATED;
  it.each(cases)(
    'of %s in %s has the bits of the training engine, wherever the weights live',
    async (name, dtype) => {
      const batches = batchesOf(name).slice(0, 1);
      const common = { exampleBatch: largestOf(batches), dtype, device };
      const expected = await withModel(name, async (model) => {
        const engine = await Engine.create({ ...common, model });
        return engine.evaluate(batches).finally(() => engine.close());
      });
      await withFolder(async (nvmePath) => {
        for (const offloadParam of ['none', 'cpu', 'nvme'] as const) {
          const actual = await withModel(name, (model) =>
            withEngine({ ...common, model, nvmePath, offloadParam }, (engine) =>
              engine.evaluate(batches),
            ),
          );
          expect(actual).toEqual(expected);
        }
        expect(readdirSync(nvmePath)).toEqual([]);
      });
    },
  );

  it('of a model of own blocks has the bits of the training engine', async () => {
    const exampleBatch = smallBatch();
    const engine = await Engine.create({ model: smallModel(), exampleBatch, device });
    const expected = await engine.evaluate([exampleBatch]).finally(() => engine.close());
    const options = { model: smallModel(), exampleBatch, device };
    const actual = await withEngine(options, (inference) => inference.evaluate([exampleBatch]));
    expect(actual).toEqual(expected);
  });
});

describe.each(DEVICES)('a sequence on %s', (device) => {
  it.each(FIXTURES)('of %s has the logits of float64 torch within 1e-5', async (name) => {
    const { tensors } = await loadFixture(name);
    const { rows } = await logitsOf(name, { device });
    const vocabSize = rows[0]!.length;
    const ids = readReference(name).input_ids[0]!;
    const expected = tensors.get('logits')!.subarray(2 * vocabSize, ids.length * vocabSize);
    const actual = Float32Array.from(rows.flatMap((row) => [...row]));
    expect(relativeError(actual, expected)).toBeLessThan(1e-5);
  });

  it.each(FIXTURES)('of %s has the same bits wherever weights and cache live', async (name) => {
    const expected = await logitsOf(name, { device, offloadParam: 'none' });
    expect(expected.plan.cacheTiers).not.toContain('host');
    await withFolder(async (nvmePath) => {
      const least = await smallest(name, { device, nvmePath, maxLength: lengthOf(name) });
      const far = await logitsOf(name, { device, nvmePath, ...least });
      expect(far.rows).toEqual(expected.rows);
      expect(far.plan.homes.every(({ param }) => param === 'nvme')).toBe(true);
      expect(far.plan.cacheTiers).toContain('host');
      expect(far.moved.nvme_read).toBeGreaterThan(0);
      const host = await logitsOf(name, { device, offloadParam: 'cpu' });
      expect(host.rows).toEqual(expected.rows);
    });
  });

  it('of many tokens at once has the logits of the same tokens one part after another', async () => {
    const length = 3 * PART_TOKENS;
    const config = {
      model_type: 'gpt2',
      vocab_size: 64,
      n_positions: length,
      n_embd: 16,
      n_layer: 2,
      n_head: 2,
    };
    const { blocks } = modelFromConfig(config, { strict: false, logger: silentLogger });
    const model = defineModel({ name: 'long', blocks, seed: 1 });
    const ids = Array.from({ length }, (_, index) => (index * index) % 64);
    const logits = (cuts: readonly number[]) =>
      withEngine({ model, device, maxLength: length, offloadParam: 'cpu' }, async (engine) => {
        let last = new Float32Array();
        for (const [index, from] of cuts.entries()) {
          last = (await engine.append(ids.slice(from, cuts[index + 1]))).slice();
        }
        return last;
      });
    const whole = await logits([0]);
    const parts = await logits([0, 10, 11, 300, length - 1]);
    if (device === 'native') expect(parts).toEqual(whole);
    else expect(relativeError(parts, whole)).toBeLessThan(1e-5);
  });

  it('can be started again, and leaves no tensor behind', async () => {
    const ids = readReference('llama-tiny').input_ids[0]!.slice(0, 6);
    await withModel('llama-tiny', (model) =>
      withEngine({ model, device, maxLength: 8 }, async (engine) => {
        const first = (await engine.append(ids)).slice();
        const before = tf.memory().numTensors;
        await engine.append([1]);
        await engine.restart();
        expect((await engine.append(ids)).slice()).toEqual(first);
        expect(tf.memory().numTensors).toBe(before);
        expect(engine.sequenceLength).toBe(6);
      }),
    );
  });
});

/** The smallest budgets that a refusal names. */
async function smallest(name: string, options: Omit<InferenceOptions, 'model'>) {
  const error: unknown = await withModel(name, (model) =>
    InferenceEngine.create({ ...options, model, deviceMemory: 1, hostMemory: 1 }).catch(
      (error: unknown) => error,
    ),
  );
  expect(error).toMatchObject({ code: 'BUDGET_TOO_SMALL' });
  const facts = isCoded(error) ? (error.facts ?? {}) : {};
  return {
    deviceMemory: Number(facts['neededDeviceBytes']),
    hostMemory: Number(facts['neededHostBytes']),
  };
}

describe('budgets of inference', () => {
  it.each([
    ['gpt2-tiny', 'float32', DEVICES[0]!],
    ['llama-tiny', 'float32', DEVICES[0]!],
    ['llama-tiny', 'bfloat16', DEVICES[0]!],
    ['llama-tiny', 'bfloat16', 'cpu'],
  ] as const)(
    'suffice for %s in %s on %s where the refusal says so, and not with a byte less',
    async (name, dtype, device) => {
      await withFolder(async (nvmePath) => {
        const common = { device, nvmePath, dtype };
        const least = await smallest(name, { ...common, maxLength: lengthOf(name) });
        const { rows } = await logitsOf(name, { ...common, ...least });
        expect(rows).toHaveLength(lengthOf(name) - 2);
        for (const key of ['deviceMemory', 'hostMemory'] as const) {
          const refused = logitsOf(name, { ...common, ...least, [key]: least[key] - 1 });
          await expect(refused).rejects.toMatchObject({ code: 'BUDGET_TOO_SMALL' });
        }
      });
    },
  );

  it.each([1, 20_000])('of %i bytes of files leave weights in memory', async (nvmeMemory) => {
    await withFolder(async (nvmePath) => {
      const common = { nvmePath, maxLength: 8 };
      const { deviceMemory } = await smallest('gpt2-tiny', common);
      const options = { ...common, deviceMemory, nvmeMemory };
      await withModel('gpt2-tiny', (model) =>
        withEngine({ ...options, model }, async (engine) => {
          expect(await engine.append([1, 2, 3])).toBeInstanceOf(Float32Array);
          expect(engine.peakBytes.nvme).toBeLessThanOrEqual(nvmeMemory);
        }),
      );
    });
  });

  it('evaluate a model that they could not train', async () => {
    const batches = batchesOf('gpt2-tiny').slice(0, 1);
    const exampleBatch = largestOf(batches);
    await withFolder(async (nvmePath) => {
      const least = await smallest('gpt2-tiny', { exampleBatch, nvmePath });
      const options = { exampleBatch, nvmePath, ...least };
      await withModel('gpt2-tiny', async (model) => {
        const training = Engine.create({ ...options, model });
        await expect(training).rejects.toMatchObject({ code: 'BUDGET_TOO_SMALL' });
        await withEngine({ ...options, model }, async (engine) => {
          const { loss } = await engine.evaluate(batches);
          expect(loss).toBeCloseTo(readReference('gpt2-tiny').training.losses[0]!, 0);
          expect(engine.peakBytes.device).toBeLessThanOrEqual(least.deviceMemory);
          expect(engine.peakBytes.host).toBeLessThanOrEqual(least.hostMemory);
        });
      });
    });
  });
});

describe('an inference engine refuses', () => {
  it('what it was not created for, and stays usable', async () => {
    const batch = batchesOf('gpt2-tiny')[0]!;
    await withModel('gpt2-tiny', async (model) => {
      await withEngine({ model, maxLength: 4 }, async (engine) => {
        await expect(engine.evaluate([batch])).rejects.toMatchObject({ code: 'USAGE_INVALID' });
        await expect(engine.append([1, 2, 3, 4, 5])).rejects.toMatchObject({
          code: 'USAGE_INVALID',
        });
        await expect(engine.append([])).rejects.toMatchObject({ code: 'USAGE_INVALID' });
        await expect(engine.readParameter('none')).rejects.toMatchObject({
          code: 'USAGE_INVALID',
        });
        expect(await engine.append([1])).toBeInstanceOf(Float32Array);
      });
      await withEngine({ model, exampleBatch: batch }, async (engine) => {
        await expect(engine.append([1])).rejects.toMatchObject({ code: 'USAGE_INVALID' });
        await expect(engine.restart()).rejects.toMatchObject({ code: 'USAGE_INVALID' });
      });
      await expect(InferenceEngine.create({ model })).rejects.toMatchObject({
        code: 'CONFIG_INVALID',
      });
    });
  });

  it('to generate with blocks that cannot continue a sequence, by their names', async () => {
    const refused = InferenceEngine.create({ model: smallModel(), maxLength: 4 });
    await expect(refused).rejects.toMatchObject({
      code: 'BLOCK_INVALID',
      message: expect.stringContaining('hidden') as string,
    });
  });

  it.each(['cpu', 'nvme'] as const)(
    'everything but close after a token outside the vocabulary, weights at %s',
    async (offloadParam) => {
      const vocab = 131;
      await withFolder(async (nvmePath) => {
        for (const token of [1e6, vocab, -1]) {
          const exampleBatch = languageModelBatch({
            inputIds: [1, token],
            labels: [1, 1],
            batchSize: 1,
            length: 2,
          });
          const options = { maxLength: 4, exampleBatch, nvmePath, offloadParam };
          for (const use of [
            (engine: InferenceEngine) => engine.append([1, token]),
            (engine: InferenceEngine) => engine.evaluate([exampleBatch]),
          ]) {
            await withModel('gpt2-tiny', (model) =>
              withEngine({ model, ...options }, async (engine) => {
                await expect(use(engine)).rejects.toMatchObject({ code: 'TOKEN_OUT_OF_RANGE' });
                await expect(engine.append([1])).rejects.toMatchObject({ code: 'ENGINE_FAILED' });
              }),
            );
          }
        }
      });
    },
  );
});
