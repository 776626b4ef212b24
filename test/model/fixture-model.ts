/**
 * @file The tiny models of fixtures/ with their references (fixtures/make_models.py).
 */
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import * as tf from '@tensorflow/tfjs-core';
import type { Tensor } from '@tensorflow/tfjs-core';
import { silentLogger } from '../../core/logger.js';
import { HuggingFaceFolder } from '../../src/checkpoint/hugging-face-folder.js';
import { matchParameters } from '../../src/checkpoint/match-parameters.js';
import { SafetensorsFile } from '../../src/checkpoint/safetensors-reader.js';
import type { MicroBatch } from '../../src/model/block.js';
import { languageModelBatch } from '../../src/model/language-model-batch.js';
import { modelFromConfig, type ModelDefinition } from '../../src/model/model-from-config.js';

/** Every fixture folder; the first ones differ in what files and layers look like. */
export const FIXTURES = [
  'gpt2-tiny',
  'gpt2-tiny-hub',
  'gpt2-tiny-f16',
  'llama-tiny',
  'llama-tiny-untied',
  'llama-yarn-tiny',
  'qwen3-tiny',
  'phi3-tied-tiny',
  'llama3-tiny',
  'mistral-tiny',
  'mistral-dynamic-tiny',
  'qwen2-tiny',
  'qwen2-linear-tiny',
  'qwen3-bias-tiny',
  'phi3-tiny',
] as const;

/** Every fixture with the first of `places`, and the first `count` with the others too. */
export function fixturesBy<T>(places: readonly T[], count: number): (readonly [string, T])[] {
  return places.flatMap((place, index) =>
    FIXTURES.slice(0, index === 0 ? undefined : count).map((name) => [name, place] as const),
  );
}

/** One micro-batch as references/<name>.json holds it. */
export interface StoredBatch {
  readonly input_ids: readonly (readonly number[])[];
  readonly labels: readonly (readonly number[])[];
}

/** references/<name>.json. */
export interface Reference extends StoredBatch {
  readonly loss: number;
  readonly loss_terms: number;
  readonly training: {
    readonly learning_rate: number;
    readonly adam_beta1: number;
    readonly adam_beta2: number;
    readonly adam_epsilon: number;
    readonly weight_decay: number;
    readonly max_grad_norm: number;
    readonly micro_batches: readonly (readonly StoredBatch[])[];
    readonly losses: readonly number[];
    readonly grad_norms: readonly number[];
    readonly learning_rates: readonly number[];
  };
}

export interface FixtureModel {
  readonly model: ModelDefinition;
  /** Values of every parameter, widened to float32. */
  readonly weights: ReadonlyMap<string, { shape: readonly number[]; values: Float32Array }>;
  readonly reference: Reference;
  /** `logits` and `grad.<parameter>` of float64 torch, rounded to float32. */
  readonly tensors: ReadonlyMap<string, Float32Array>;
}

/** Reads a fixture: folder and references. */
export async function loadFixture(name: string): Promise<FixtureModel> {
  const root = fileURLToPath(new URL('../../fixtures/', import.meta.url));
  const folder = await HuggingFaceFolder.open(`${root}${name}`);
  const model = modelFromConfig(folder.config, { strict: false, logger: silentLogger });
  const specs = model.blocks.flatMap((block) => block.owns);
  const matched = matchParameters(specs, folder.tensors, name, model);
  const weights = new Map<string, { shape: readonly number[]; values: Float32Array }>();
  for (const { name: param, shape } of specs) {
    const { file, entry } = matched.get(param)!;
    const values = new Float32Array(shape.reduce((product, size) => product * size, 1));
    await file.readElements(entry, 0, values);
    weights.set(param, { shape, values });
  }
  await folder.close();
  const text = readFileSync(`${root}references/${name}.json`, 'utf8');
  const tensors = await readAll(`${root}references/${name}.safetensors`);
  return { model, weights, reference: JSON.parse(text) as Reference, tensors };
}

/** The weights as tensors; the caller disposes them. */
export function weightTensors({ weights }: FixtureModel): Record<string, Tensor> {
  return Object.fromEntries(
    [...weights].map(([name, { shape, values }]) => [
      name,
      tf.tensor(values.slice(), [...shape], 'float32'),
    ]),
  );
}

/** The micro-batch of stored ids and labels. */
export function batchOf({ input_ids, labels }: StoredBatch): MicroBatch {
  return languageModelBatch({
    inputIds: input_ids.flat(),
    labels: labels.flat(),
    batchSize: input_ids.length,
    length: input_ids[0]!.length,
  });
}

/** Largest difference over the largest absolute value of `expected`. */
export function relativeError(actual: ArrayLike<number>, expected: ArrayLike<number>): number {
  if (actual.length !== expected.length) return Infinity;
  let difference = 0;
  let largest = 0;
  for (let i = 0; i < expected.length; i += 1) {
    // A NaN must not pass as a small difference.
    const distance = Math.abs(actual[i]! - expected[i]!);
    difference = Number.isNaN(distance) ? Infinity : Math.max(difference, distance);
    largest = Math.max(largest, Math.abs(expected[i]!));
  }
  return difference / largest;
}

async function readAll(path: string): Promise<Map<string, Float32Array>> {
  const file = await SafetensorsFile.open(path);
  const tensors = new Map<string, Float32Array>();
  for (const entry of file.entries) {
    const values = new Float32Array(entry.shape.reduce((product, size) => product * size, 1));
    await file.readElements(entry, 0, values);
    tensors.set(entry.name, values);
  }
  await file.close();
  return tensors;
}
