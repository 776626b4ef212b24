/**
 * @file Runs an engine over the fixtures, for the engine's tests.
 */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect } from 'vitest';
import { LINKS, type Link } from '../../core/types.js';
import { loadPretrained } from '../../src/checkpoint/load-pretrained.js';
import { Engine } from '../../src/engine/engine.js';
import type { EngineOptions } from '../../src/engine/engine-options.js';
import type { Span } from '../../src/engine/step-executor.js';
import type { MicroBatch, Model } from '../../src/model/block.js';
import { languageModelBatch } from '../../src/model/language-model-batch.js';
import { bytesPerLink } from '../../src/plan/step-plan.js';
import { availableDevices } from '../../tiers/device/create-device.js';
import type { Reference, StoredBatch } from '../model/fixture-model.js';

/** Devices of this process, best first; the first is what the engine takes by default. */
export const DEVICES = availableDevices();

export const fixtureFolder = (name: string): string =>
  fileURLToPath(new URL(`../../fixtures/${name}`, import.meta.url));

export function readReference(name: string): Reference {
  return JSON.parse(readFileSync(fixtureFolder(`references/${name}.json`), 'utf8')) as Reference;
}

export function toMicroBatch(stored: StoredBatch): MicroBatch {
  return languageModelBatch({
    inputIds: stored.input_ids.flat(),
    labels: stored.labels.flat(),
    batchSize: stored.input_ids.length,
    length: stored.input_ids[0]?.length ?? 0,
  });
}

/** A batch of the largest batch size and length among `batches`. */
export function largestOf(batches: readonly MicroBatch[]): MicroBatch {
  const shapes = batches.map((batch) => batch.fields['input_ids']?.shape ?? []);
  const batchSize = Math.max(...shapes.map((shape) => shape[0] ?? 0));
  const length = Math.max(...shapes.map((shape) => shape[1] ?? 0));
  const tokens = new Int32Array(batchSize * length);
  return languageModelBatch({ inputIds: tokens, labels: tokens, batchSize, length });
}

/** A folder that is removed after `body`. */
export async function withFolder<T>(body: (folder: string) => Promise<T>): Promise<T> {
  const folder = mkdtempSync(join(tmpdir(), 'spillway-engine-'));
  try {
    return await body(folder);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** What a run of several steps shows; equal runs are equal in every bit of it. */
export interface RunRecord {
  readonly losses: readonly number[];
  readonly gradNorms: readonly number[];
  readonly weights: Readonly<Record<string, Float32Array>>;
}

/** Takes one step per accumulated batch and reads the final weights. */
export async function runSteps(
  model: Model,
  steps: readonly (readonly MicroBatch[])[],
  options: Omit<EngineOptions, 'model' | 'exampleBatch'>,
  learningRates: readonly number[] = [],
): Promise<RunRecord> {
  const spanned: Record<Link, number> = { upload: 0, download: 0, nvme_read: 0, nvme_write: 0 };
  const engine = await Engine.create({
    ...options,
    model,
    exampleBatch: largestOf(steps.flat()),
    execution: {
      ...options.execution,
      onSpan: (span) => {
        addBytes(spanned, span);
        options.execution?.onSpan?.(span);
      },
    },
  });
  try {
    const losses: number[] = [];
    const gradNorms: number[] = [];
    const loaded = engine.bytesMoved;
    const planned = { ...loaded };
    let devicePeak = 0;
    for (const [index, batches] of steps.entries()) {
      const moved = bytesPerLink(engine.stepPlan(batches));
      for (const link of LINKS) planned[link] += moved[link];
      const peaks = await engine.devicePeaks(batches);
      devicePeak = Math.max(devicePeak, ...Object.values(peaks ?? {}));
      const learningRate = learningRates[index];
      const result = await engine.step(batches, learningRate === undefined ? {} : { learningRate });
      losses.push(result.loss);
      gradNorms.push(result.gradNorm);
    }
    await engine.drain();
    // The native device's plan knows every shape; the cpu device's, only the largest.
    if (engine.deviceName === 'native') {
      expect(engine.bytesMoved).toEqual(planned);
      // What a trace would say.
      for (const link of LINKS) expect(spanned[link], link).toBe(planned[link] - loaded[link]);
      expect(engine.peakBytes.device).toBe(devicePeak);
    }
    const { host, nvme } = engine.plan.peakBytes;
    expect(engine.peakBytes).toMatchObject({ host, nvme });
    const weights: Record<string, Float32Array> = {};
    for (const spec of model.blocks.flatMap((block) => block.owns)) {
      weights[spec.name] = await engine.readParameter(spec.name);
    }
    return { losses, gradNorms, weights };
  } finally {
    await engine.close();
  }
}

/** Kernels and updates tell no pieces: what they move stands in their operation. */
function addBytes(sums: Record<Link, number>, { lane, operation, bytes }: Span): void {
  if (lane === 'compute' || lane === 'update') {
    for (const link of LINKS) sums[link] += operation.bytes[link] ?? 0;
  } else {
    sums[lane] += bytes;
  }
}

/** `runSteps` on a fixture folder. */
export async function runFixture(
  name: string,
  steps: readonly (readonly MicroBatch[])[],
  options: Omit<EngineOptions, 'model' | 'exampleBatch'>,
): Promise<RunRecord> {
  const model = await loadPretrained(fixtureFolder(name));
  try {
    return await runSteps(model, steps, options);
  } finally {
    await model.close();
  }
}

/** Largest error over largest value. */
export function relativeError(actual: ArrayLike<number>, expected: ArrayLike<number>): number {
  let error = 0;
  let scale = 0;
  for (let index = 0; index < expected.length; index += 1) {
    const value = expected[index] ?? Number.NaN;
    error = Math.max(error, Math.abs((actual[index] ?? Number.NaN) - value));
    scale = Math.max(scale, Math.abs(value));
  }
  return actual.length === expected.length ? error / scale : Number.NaN;
}
