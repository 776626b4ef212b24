// Goal: whatever the model, the wishes and the budgets, inference is refused or gives the bits of the
// resident run and of the training engine within its budgets; the budgets that a refusal names work.
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import * as tf from '@tensorflow/tfjs-core';
import fc from 'fast-check';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { TIERS } from '../../core/types.js';
import { Engine } from '../../src/engine/engine.js';
import { InferenceEngine } from '../../src/engine/inference-engine.js';
import type { InferenceOptions } from '../../src/engine/inference-options.js';
import { untilDeadline } from './until-deadline.js';
import { buildBatch, buildModel, randomModel, type RandomModel } from './random-model.js';
import { DEVICES } from './run-engine.js';

const TIME_LIMIT_MS = 5_000;

interface Case {
  readonly model: RandomModel;
  readonly device: string;
  readonly dtype: 'float32' | 'bfloat16';
  readonly usesNvme: boolean;
  readonly offloadParam: 'none' | 'cpu' | 'nvme' | 'auto';
  /** Bytes above the smallest budgets. */
  readonly slack: { readonly device: number; readonly host: number };
}

const slack = (max: number) => fc.oneof(fc.constant(0), fc.integer({ min: 0, max }));

const randomCase: fc.Arbitrary<Case> = fc.record({
  model: randomModel,
  device: fc.constantFrom(...DEVICES),
  dtype: fc.constantFrom('float32', 'bfloat16'),
  usesNvme: fc.boolean(),
  offloadParam: fc.constantFrom('auto', 'auto', 'cpu', 'nvme', 'none'),
  slack: fc.record({ device: slack(60_000), host: slack(8 * 2 ** 20) }),
});

let nvmePath: string;
beforeAll(() => {
  nvmePath = mkdtempSync(join(tmpdir(), 'spillway-random-inference-'));
});
afterAll(() => rmSync(nvmePath, { recursive: true, force: true }));

/** Families whose blocks continue sequences. */
const generates = ({ kind, middle }: RandomModel): boolean =>
  kind !== 'plain' && (kind !== 'tokens' || middle.length === 0);

/** A loss and, where the model generates, logits after two tokens and after each that follows. */
async function record(one: Case, options: Partial<InferenceOptions>): Promise<unknown> {
  const { model: random, device, dtype } = one;
  const { length } = random;
  const engine = await InferenceEngine.create({
    model: buildModel(random),
    exampleBatch: buildBatch(random, random.batchSize, length, 0),
    device,
    dtype,
    subGroupSize: 4096,
    ...(generates(random) ? { maxLength: length } : {}),
    ...options,
  });
  try {
    const { loss } = await engine.evaluate([buildBatch(random, 1, 2, 77)]);
    const logits: Float32Array[] = [];
    if (generates(random)) {
      logits.push((await engine.append([0, 1])).slice());
      for (let id = 2; id < length; id += 1) {
        logits.push((await engine.append([id % random.vocab])).slice());
      }
    }
    for (const tier of TIERS) {
      const [peak, planned] = [engine.peakBytes[tier], engine.plan.peakBytes[tier]];
      expect(peak, `${tier} within its plan`).toBeLessThanOrEqual(planned);
      expect(planned, `${tier} within its budget`).toBeLessThanOrEqual(engine.budgetBytes[tier]);
    }
    return { loss, logits };
  } finally {
    await engine.close();
  }
}

async function trainingLoss({ model: random, device, dtype }: Case): Promise<number> {
  const engine = await Engine.create({
    model: buildModel(random),
    exampleBatch: buildBatch(random, random.batchSize, random.length, 0),
    device,
    dtype,
  });
  const { loss } = await engine
    .evaluate([buildBatch(random, 1, 2, 77)])
    .finally(() => engine.close());
  return loss;
}

async function holds(one: Case): Promise<void> {
  const tensors = tf.memory().numTensors;
  const large = { deviceMemory: 2 ** 28, hostMemory: 2 ** 28 };
  const resident = await record(one, { offloadParam: 'none', ...large });
  expect(resident).toMatchObject({ loss: await trainingLoss(one) });
  const near = one.offloadParam === 'nvme' ? 'cpu' : one.offloadParam;
  const placement = one.usesNvme
    ? { offloadParam: one.offloadParam, nvmePath }
    : { offloadParam: near };
  const refusal: { code: string; facts: Record<string, number> } = await record(one, {
    ...placement,
    deviceMemory: 1,
    hostMemory: 1,
  }).then(
    () => expect.unreachable('one byte is enough'),
    (error: unknown) => error as never,
  );
  expect(refusal).toMatchObject({ code: 'BUDGET_TOO_SMALL' });
  const { neededDeviceBytes, neededHostBytes } = refusal.facts;
  const offloaded = await record(one, {
    ...placement,
    deviceMemory: neededDeviceBytes! + one.slack.device,
    hostMemory: neededHostBytes! + one.slack.host,
  });
  expect(offloaded).toEqual(resident);
  expect(tf.memory().numTensors).toBe(tensors);
  expect(readdirSync(nvmePath)).toEqual([]);
}

it(
  'gives the resident bits within its budgets, in random models and placements',
  async () => {
    await fc.assert(fc.asyncProperty(randomCase, untilDeadline(TIME_LIMIT_MS, holds)), {
      numRuns: 1000,
    });
  },
  10 * TIME_LIMIT_MS,
);
