// Goal: whatever the model, the batches, the wishes and the budgets, a run is refused or gives the
// bits of the resident run within its budgets; the budgets that a refusal names work; and on the
// native device a step moves and holds, phase by phase, exactly what its plan says.
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import * as tf from '@tensorflow/tfjs-core';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { TIERS } from '../../core/types.js';
import { Engine } from '../../src/engine/engine.js';
import type { EngineOptions } from '../../src/engine/engine-options.js';
import type { Model } from '../../src/model/block.js';
import { ExecutionCounter } from './execution-counter.js';
import { DEVICES } from './run-engine.js';
import { timeLimitMs, untilDeadline } from './until-deadline.js';
import { buildBatch, buildModel, randomModel, type RandomModel } from './random-model.js';

/** The test's time on each device; a case takes 0.3 to 1.5 s. */
const TIME_LIMIT_MS = timeLimitMs(15);

/** Shares of the largest batch size and length. */
interface MicroBatchShape {
  readonly batchSize: number;
  readonly length: number;
}

interface Case {
  readonly model: RandomModel;
  /** At most `microBatches` in each. */
  readonly steps: readonly (readonly MicroBatchShape[])[];
  readonly microBatches: number;
  readonly evaluated: readonly MicroBatchShape[];
  /** Whether each step's commit is awaited before the next step. */
  readonly waits: boolean;
  readonly usesNvme: boolean;
  readonly shared: Pick<EngineOptions, 'dtype' | 'subGroupSize'> & { readonly clip: number };
  readonly placed: Pick<EngineOptions, 'microBatchOrder' | 'optimizerWorkers'> & {
    readonly offloadParam: 'none' | 'cpu' | 'nvme' | 'auto';
    readonly offloadOptimizer: 'none' | 'cpu' | 'nvme' | 'auto';
  };
  /** Of all links, in bytes per second. */
  readonly throttle: number | undefined;
  /** Bytes above the smallest budgets. */
  readonly slack: { readonly device: number; readonly host: number };
}

const share = fc.double({ min: 0, max: 1, noNaN: true });
const offload = fc.constantFrom('auto', 'auto', 'cpu', 'nvme', 'none');
const slack = (max: number) => fc.oneof(fc.constant(0), fc.integer({ min: 0, max }));

const SMALLEST: MicroBatchShape = { batchSize: 0, length: 0 };
const LARGEST: MicroBatchShape = { batchSize: 1, length: 1 };

const randomMicroBatch = fc.oneof(
  fc.constant(LARGEST),
  fc.record({ batchSize: share, length: share }),
);

const MOST_MICRO_BATCHES = 4;

const randomCase: fc.Arbitrary<Case> = fc
  .record({
    model: randomModel,
    steps: fc.array(fc.array(randomMicroBatch, { minLength: 1, maxLength: MOST_MICRO_BATCHES }), {
      minLength: 1,
      maxLength: 3,
    }),
    evaluated: fc.array(randomMicroBatch, { minLength: 1, maxLength: 3 }),
    /** Micro-batches that memory is planned for and no step has. */
    spare: fc.constantFrom(0, 0, 1),
    waits: fc.boolean(),
    usesNvme: fc.boolean(),
    shared: fc.record({
      dtype: fc.constantFrom('float32', 'bfloat16'),
      subGroupSize: fc.constantFrom(4096, 8192, 2 ** 24),
      clip: fc.constantFrom(0, 0.5, 1e9),
    }),
    placed: fc.record({
      microBatchOrder: fc.constantFrom('vertical', 'horizontal', 'auto'),
      optimizerWorkers: fc.integer({ min: 1, max: 3 }),
      offloadParam: offload,
      offloadOptimizer: offload,
    }),
    throttle: fc.constantFrom(undefined, undefined, 2e7, 3e8),
    slack: fc.record({ device: slack(300_000), host: slack(8 * 2 ** 20) }),
  })
  .map(({ spare, ...one }) => {
    return { ...one, microBatches: Math.max(...one.steps.map(({ length }) => length)) + spare };
  });

let nvmePath: string;
beforeAll(() => {
  nvmePath = mkdtempSync(join(tmpdir(), 'spillway-random-'));
});
afterAll(() => rmSync(nvmePath, { recursive: true, force: true }));

/** A whole number between `min` and `max`. */
const between = (min: number, max: number, part: number): number =>
  min + Math.round(part * (max - min));

/** All that a run shows: losses, norms, an evaluation, weights. */
async function record(one: Case, options: Partial<EngineOptions>): Promise<unknown> {
  const model = buildModel(one.model);
  const counter = options.device === 'native' ? ExecutionCounter.install(model) : undefined;
  try {
    return await recordCounted(one, model, options, counter);
  } finally {
    vi.restoreAllMocks();
  }
}

async function recordCounted(
  one: Case,
  model: Model,
  options: Partial<EngineOptions>,
  counter: ExecutionCounter | undefined,
): Promise<unknown> {
  const { model: random, shared, microBatches } = one;
  const { clip, ...common } = shared;
  const engine: Engine = await Engine.create({
    model,
    exampleBatch: buildBatch(random, random.batchSize, random.length, 0),
    gradientAccumulationSteps: microBatches,
    optimizer: { learningRate: 1e-2, weightDecay: 0.1, maxGradNorm: clip },
    ...(counter && { io: { backend: counter.countedDisk() } }),
    ...common,
    ...options,
    execution: { ...options.execution, onSpan: (span) => counter?.noteHeld(span, engine) },
  });
  try {
    const numbers: number[] = [];
    let seed = 0;
    const batchOf = ({ batchSize, length }: MicroBatchShape) => {
      seed += 1;
      const rows = between(1, random.batchSize, batchSize);
      return buildBatch(random, rows, between(2, random.length, length), seed);
    };
    for (const step of one.steps) {
      const batches = step.map(batchOf);
      await counter?.announce(engine, batches);
      const result = await engine.step(batches);
      if (one.waits) await result.committed;
      numbers.push(result.loss, result.gradNorm);
    }
    await engine.drain();
    counter?.noteEnd(engine);
    const evaluated = one.evaluated.map(batchOf).slice(0, microBatches);
    const evaluate = (): Promise<{ loss: number }> =>
      counter === undefined ? engine.evaluate(evaluated) : counter.evaluate(engine, evaluated);
    const { loss } = await evaluate();
    expect(counter?.executed).toEqual(counter?.planned);
    const weights: Record<string, string> = {};
    for (const { name } of model.blocks.flatMap(({ owns }) => owns)) {
      const values = await engine.readParameter(name);
      weights[name] = Buffer.from(values.buffer).toString('base64');
    }
    for (const tier of TIERS) {
      const [peak, planned] = [engine.peakBytes[tier], engine.plan.peakBytes[tier]];
      expect(peak, `${tier} within its plan`).toBeLessThanOrEqual(planned);
      expect(planned, `${tier} within its budget`).toBeLessThanOrEqual(engine.budgetBytes[tier]);
    }
    return { numbers, loss, weights };
  } finally {
    await engine.close();
  }
}

/** The wishes of a case; without a path none for NVMe. */
function placementOf({ usesNvme, placed: wishes, throttle }: Case): Partial<EngineOptions> {
  const links = throttle && {
    upload: throttle,
    download: throttle,
    nvme_read: throttle,
    nvme_write: throttle,
  };
  const placed = { ...wishes, ...(links && { execution: { throttles: links } }) };
  if (usesNvme) return { ...placed, nvmePath };
  const near = <T>(wish: T): T | 'cpu' => (wish === 'nvme' ? 'cpu' : wish);
  const { offloadParam, offloadOptimizer } = placed;
  return { ...placed, offloadParam: near(offloadParam), offloadOptimizer: near(offloadOptimizer) };
}

async function holds(one: Case, device: string): Promise<void> {
  const tensors = tf.memory().numTensors;
  const resident = await record(one, {
    device,
    offloadParam: 'none',
    offloadOptimizer: 'none',
    deviceMemory: 2 ** 29,
    hostMemory: 2 ** 29,
    microBatchOrder: 'vertical',
    optimizerWorkers: 1,
  });
  const placement = placementOf(one);
  const refusal: { code: string; facts: Record<string, number> } = await record(one, {
    ...placement,
    device,
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
    device,
    deviceMemory: neededDeviceBytes! + one.slack.device,
    hostMemory: neededHostBytes! + one.slack.host,
  });
  expect(offloaded).toEqual(resident);
  expect(tf.memory().numTensors).toBe(tensors);
  expect(readdirSync(nvmePath)).toEqual([]);
}

const TOKENS: RandomModel = {
  kind: 'tokens',
  vocab: 13,
  heads: 1,
  headWidth: 4,
  inner: 96,
  tied: true,
  middle: [{ op: 'table', width: 1 }],
  tileRows: 6,
  frozen: 0,
  batchSize: 1,
  length: 3,
  packed: false,
};

const TIGHT: Case = {
  model: TOKENS,
  steps: [[LARGEST]],
  microBatches: 1,
  evaluated: [LARGEST],
  waits: false,
  usesNvme: false,
  shared: { dtype: 'float32', subGroupSize: 4096, clip: 0 },
  placed: {
    microBatchOrder: 'vertical',
    optimizerWorkers: 1,
    offloadParam: 'cpu',
    offloadOptimizer: 'cpu',
  },
  throttle: undefined,
  slack: { device: 0, host: 0 },
};

describe.each(DEVICES)('on %s', (device) => {
  it.each<[string, Case]>([
    [
      'a table with a row, a dense and a tiled use in horizontal order',
      {
        ...TIGHT,
        steps: [[LARGEST, LARGEST]],
        microBatches: 2,
        placed: { ...TIGHT.placed, microBatchOrder: 'horizontal' },
      },
    ],
    [
      'losses that are large beside the parameters, at the smallest budget',
      { ...TIGHT, model: { ...TOKENS, kind: 'plain', middle: [], tied: false } },
    ],
    [
      'a head of several tiles without a norm, at the smallest budget',
      {
        ...TIGHT,
        model: { ...TOKENS, heads: 3, headWidth: 12, middle: [], batchSize: 3, length: 9 },
      },
    ],
    [
      'a first layer that is frozen and a second one that trains, at the smallest budget',
      // Bits 2 to 13 are the first layer's parameters.
      {
        ...TIGHT,
        model: { ...TOKENS, kind: 'gpt2', headWidth: 24, frozen: 0b11_1111_1111_1100 },
      },
    ],
    [
      'a block that gives back its input, reshaped, over micro-batches of two shapes',
      {
        ...TIGHT,
        model: { ...TOKENS, middle: [{ op: 'shape', width: 1 }], batchSize: 2 },
        steps: [[SMALLEST, SMALLEST, SMALLEST, LARGEST]],
        microBatches: 4,
      },
    ],
  ])('gives the resident bits for %s', async (_, one) => {
    await holds(one, device);
  });

  it(
    'gives the resident bits within its budgets, in random models and placements',
    async () => {
      await fc.assert(
        fc.asyncProperty(
          randomCase,
          untilDeadline(TIME_LIMIT_MS, (one: Case) => holds(one, device)),
        ),
        { numRuns: 1000 },
      );
    },
    4 * TIME_LIMIT_MS,
  );
});
