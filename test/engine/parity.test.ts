// Goal: the engine, with everything on NVMe, computes what float64 torch computes.
import { describe, expect, it } from 'vitest';
import { loadPretrained } from '../../src/checkpoint/load-pretrained.js';
import { SafetensorsFile } from '../../src/checkpoint/safetensors-reader.js';
import { Engine } from '../../src/engine/engine.js';
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

it('one batch and its micro-batches give the same loss and gradients within 1e-6', async () => {
  const reference = readReference('gpt2-tiny');
  const rows = reference.input_ids.map((ids, row) =>
    toMicroBatch({ input_ids: [ids], labels: [reference.labels[row] ?? []] }),
  );
  const merged = toMicroBatch(reference);
  const gradients: Record<string, Float32Array>[] = [];
  const losses: number[] = [];
  for (const batches of [[merged], rows]) {
    const model = await loadPretrained(fixtureFolder('gpt2-tiny'));
    const engine = await Engine.create({
      model,
      exampleBatch: largestOf(batches),
      gradientAccumulationSteps: batches.length,
      deviceMemory: '4MiB',
      hostMemory: '16MiB',
    });
    losses.push((await engine.step(batches, { learningRate: 0 })).loss);
    const all: Record<string, Float32Array> = {};
    for (const { name } of model.blocks.flatMap((block) => block.owns)) {
      all[name] = await engine.readGradient(name);
    }
    gradients.push(all);
    await engine.close();
    await model.close();
  }
  expect(Math.abs(losses[1]! / losses[0]! - 1)).toBeLessThan(1e-6);
  for (const [name, one] of Object.entries(gradients[0]!)) {
    expect(relativeError(gradients[1]![name]!, one), name).toBeLessThan(1e-6);
  }
});
