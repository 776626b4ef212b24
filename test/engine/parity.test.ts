// Goal: the engine, with everything on NVMe, computes what float64 torch computes.
import { describe, expect, it } from 'vitest';
import { loadPretrained } from '../../src/checkpoint/load-pretrained.js';
import { SafetensorsFile } from '../../src/checkpoint/safetensors-reader.js';
import { Engine } from '../../src/engine/engine.js';
import type { MicroBatch } from '../../src/model/block.js';
import { languageModelBatch } from '../../src/model/language-model-batch.js';
import { fixturesBy } from '../model/fixture-model.js';
import {
  DEVICES,
  fixtureFolder,
  largestOf,
  readReference,
  relativeError,
  runSteps,
  toMicroBatch,
  withFolder,
} from './run-engine.js';

const OFFLOADED = {
  offloadParam: 'nvme',
  offloadOptimizer: 'nvme',
  deviceMemory: '1MiB',
  hostMemory: '8MiB',
  subGroupSize: 4096,
} as const;

const CASES = fixturesBy(DEVICES, 5);

describe.each(CASES)('%s on %s, offloaded to NVMe', (name, device) => {
  it('has the loss and every parameter gradient of float64 torch within 1e-5', async () => {
    const reference = readReference(name);
    const batch = toMicroBatch(reference);
    const model = await loadPretrained(fixtureFolder(name));
    const tensors = await SafetensorsFile.open(fixtureFolder(`references/${name}.safetensors`));
    await withFolder(async (nvmePath) => {
      const options = { ...OFFLOADED, device, model, exampleBatch: batch, nvmePath };
      const engine = await Engine.create(options);
      try {
        const { loss } = await engine.step([batch], { learningRate: 0 });
        expect(Math.abs(loss - reference.loss) / reference.loss).toBeLessThan(1e-5);
        for (const { name: param } of model.blocks.flatMap((block) => block.owns)) {
          const entry = tensors.entry(`grad.${param}`);
          expect(entry, param).toBeDefined();
          const gradient = await engine.readGradient(param);
          const expected = new Float32Array(gradient.length);
          await tensors.readElements(entry!, 0, expected);
          expect(relativeError(gradient, expected), param).toBeLessThan(1e-5);
        }
      } finally {
        await engine.close();
      }
    });
    await tensors.close();
    await model.close();
  });

  it('has the losses of 10 AdamW steps with accumulation, clipping and a schedule', async () => {
    const { training } = readReference(name);
    const steps = training.micro_batches.map((batches) => batches.map(toMicroBatch));
    const model = await loadPretrained(fixtureFolder(name));
    const run = await withFolder((nvmePath) =>
      runSteps(
        model,
        steps,
        {
          ...OFFLOADED,
          device,
          nvmePath,
          gradientAccumulationSteps: 3,
          optimizer: {
            beta1: training.adam_beta1,
            beta2: training.adam_beta2,
            epsilon: training.adam_epsilon,
            weightDecay: training.weight_decay,
            maxGradNorm: training.max_grad_norm,
          },
        },
        training.learning_rates,
      ),
    );
    expect(relativeError(run.losses, training.losses)).toBeLessThan(1e-5);
    expect(relativeError(run.gradNorms, training.grad_norms)).toBeLessThan(1e-5);
    // Clipping is active in some steps and not in others.
    const norms = training.grad_norms;
    expect(norms.some((norm) => norm > training.max_grad_norm)).toBe(true);
    expect(norms.some((norm) => norm < training.max_grad_norm)).toBe(true);
    await model.close();
  });
});

/** Loss and every gradient of one step over `batches`, at learning rate 0. */
async function lossAndGradients(
  name: string,
  batches: readonly MicroBatch[],
): Promise<{ loss: number; gradients: Record<string, Float32Array> }> {
  const model = await loadPretrained(fixtureFolder(name));
  const engine = await Engine.create({
    model,
    exampleBatch: batches.length === 1 ? batches[0]! : largestOf(batches),
    gradientAccumulationSteps: batches.length,
    deviceMemory: '4MiB',
    hostMemory: '16MiB',
  });
  const { loss } = await engine.step(batches, { learningRate: 0 });
  const gradients: Record<string, Float32Array> = {};
  for (const { name: param } of model.blocks.flatMap((block) => block.owns)) {
    gradients[param] = await engine.readGradient(param);
  }
  await engine.close();
  await model.close();
  return { loss, gradients };
}

it('one batch and its micro-batches give the same loss and gradients within 1e-6', async () => {
  const reference = readReference('gpt2-tiny');
  const rows = reference.input_ids.map((ids, row) =>
    toMicroBatch({ input_ids: [ids], labels: [reference.labels[row] ?? []] }),
  );
  const one = await lossAndGradients('gpt2-tiny', [toMicroBatch(reference)]);
  const several = await lossAndGradients('gpt2-tiny', rows);
  expect(Math.abs(several.loss / one.loss - 1)).toBeLessThan(1e-6);
  for (const [name, gradient] of Object.entries(one.gradients)) {
    expect(relativeError(several.gradients[name]!, gradient), name).toBeLessThan(1e-6);
  }
});

it.each(['gpt2-tiny', 'qwen3-tiny'])(
  'packed documents give %s the loss and gradients of their documents alone',
  async (name) => {
    const documents = [9, 1, 7, 4].map((length, salt) =>
      Array.from({ length }, (_, t) => (t * t * 7 + t * 13 + salt * 31) % 60),
    );
    const alone = documents.map((ids) => toMicroBatch({ input_ids: [ids], labels: [ids] }));
    const tokens = documents.flat();
    const packed = languageModelBatch({
      inputIds: tokens,
      labels: tokens,
      batchSize: 1,
      length: tokens.length,
      documents: documents.flatMap((ids, index) => ids.map(() => index)),
      positionIds: documents.flatMap((ids) => ids.map((_, t) => t)),
    });
    const one = await lossAndGradients(name, [packed]);
    const several = await lossAndGradients(name, alone);
    expect(Math.abs(several.loss / one.loss - 1)).toBeLessThan(1e-6);
    for (const [param, gradient] of Object.entries(one.gradients)) {
      expect(relativeError(several.gradients[param]!, gradient), param).toBeLessThan(1e-5);
    }
  },
);
