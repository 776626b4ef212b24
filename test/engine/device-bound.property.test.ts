// Goal: whatever the model, the budgets and the micro-batches, what memory planning sets aside on
// the device is enough for every step and evaluation: an engine at the smallest budgets never runs out of it.
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { Tier } from '../../core/types.js';
import { EvaluationPlanner } from '../../src/engine/evaluation-planner.js';
import { packingOf } from '../../src/engine/forecast-training.js';
import { planOn, type PlanningOptions } from '../../src/engine/plan-training.js';
import { simulateDevice } from '../../src/engine/simulate-device.js';
import { lengthsOf, StepPlanner } from '../../src/engine/step-planner.js';
import { probeWorkspaces } from '../../src/engine/workspace-probe.js';
import type { MicroBatch } from '../../src/model/block.js';
import { layoutParameters } from '../../src/plan/parameter-layout.js';
import { createPlanningDevice } from '../../tiers/device/create-device.js';
import type { Device } from '../../tiers/device/device.js';
import { timeLimitMs, untilDeadline } from './until-deadline.js';
import { buildBatch, buildModel, randomModel, type RandomModel } from './random-model.js';
import { DEVICES } from './run-engine.js';

/** A case takes about 20 ms. */
const TIME_LIMIT_MS = timeLimitMs(12);

const AMPLE: Readonly<Record<Tier, number>> = { device: 2 ** 40, host: 2 ** 40, nvme: 2 ** 40 };

const share = fc.double({ min: 0, max: 1, noNaN: true });
const shape = fc.oneof(
  { weight: 2, arbitrary: fc.constant({ batchSize: 1, length: 1 }) },
  { weight: 1, arbitrary: fc.record({ batchSize: share, length: share }) },
);
const offload = fc.constantFrom('auto', 'auto', 'cpu', 'nvme', 'none');

interface Case {
  readonly model: RandomModel;
  /** Of what is evaluated too: shares of the largest batch size and length. */
  readonly step: readonly { readonly batchSize: number; readonly length: number }[];
  /** Micro-batches that memory is planned for and the step does not have. */
  readonly spare: number;
  readonly wishes: Pick<
    PlanningOptions,
    'dtype' | 'microBatchOrder' | 'offloadParam' | 'offloadOptimizer'
  >;
  /** Bytes above the smallest budgets. */
  readonly slack: { readonly device: number; readonly host: number };
}

const randomCase: fc.Arbitrary<Case> = fc.record({
  model: randomModel,
  step: fc.array(shape, { minLength: 1, maxLength: 4 }),
  spare: fc.constantFrom(0, 0, 1, 2),
  wishes: fc.record({
    dtype: fc.constantFrom('float32', 'bfloat16'),
    microBatchOrder: fc.constantFrom('vertical', 'horizontal', 'auto'),
    offloadParam: offload,
    offloadOptimizer: offload,
  }),
  slack: fc.record({
    device: fc.oneof(fc.constant(0), fc.integer({ min: 0, max: 100_000 })),
    host: fc.oneof(fc.constant(0), fc.integer({ min: 0, max: 8 * 2 ** 20 })),
  }),
});

const between = (min: number, max: number, part: number): number =>
  min + Math.round(part * (max - min));

/** The most that the plan sets aside, and the most that step and evaluation take. */
async function deviceBytes(
  meta: Device,
  { model: random, step, spare, wishes, slack }: Case,
): Promise<{ planned: number; taken: number }> {
  const { blocks } = buildModel(random);
  const exampleBatch = buildBatch(random, random.batchSize, random.length, 0);
  const layout = layoutParameters(blocks, 4096);
  const options: PlanningOptions = {
    ...wishes,
    model: { blocks },
    exampleBatch,
    gradientAccumulationSteps: step.length + spare,
    nvmePath: '/nvme',
    optimizerWorkers: 1,
  };
  const least = planOn(meta, options, layout, AMPLE).plan.minimumBytes;
  const budgets = {
    ...AMPLE,
    device: least.device + slack.device,
    host: least.host + slack.host,
  };
  const planned = planOn(meta, options, layout, budgets);
  const { plan, slotBytes } = planned;
  expect(plan.peakBytes.device).toBeLessThanOrEqual(budgets.device);
  const packing = packingOf(meta, options, layout, planned);
  const batches = step.map(({ batchSize, length }) =>
    buildBatch(
      random,
      between(1, random.batchSize, batchSize),
      between(2, random.length, length),
      0,
    ),
  );
  const profilesOf = (batch: MicroBatch) =>
    probeWorkspaces(meta, blocks, layout, batch, packing.dtype);
  const planner = new StepPlanner({
    ...packing,
    blocks,
    plan,
    clips: true,
    slotLengths: blocks.map((_, index) => slotBytes(index) / 4),
    profilesOf,
  });
  const evaluations = new EvaluationPlanner({
    ...packing,
    blocks,
    plan: { order: 'horizontal' },
    region: plan.region,
    most: batches.length,
    lengthsOf: (batch) => lengthsOf(profilesOf(batch)),
  });
  const peaks: number[] = [];
  for (const operations of [planner.planFor(batches), evaluations.planFor(batches)]) {
    const simulated = { ...packing, blocks, plan, step: operations, batches };
    peaks.push(...Object.values(await simulateDevice(meta, simulated)));
  }
  return { planned: plan.peakBytes.device, taken: Math.max(...peaks) };
}

const CHAIN: Case = {
  model: {
    kind: 'plain',
    vocab: 3,
    heads: 1,
    headWidth: 2,
    inner: 3,
    tied: true,
    middle: [{ op: 'table', width: 1 }],
    tileRows: 1,
    frozen: 0,
    batchSize: 1,
    length: 6,
    packed: false,
  },
  step: [{ batchSize: 1, length: 1 }],
  spare: 0,
  wishes: { microBatchOrder: 'vertical' },
  slack: { device: 0, host: 0 },
};

/** Bounds that were too low once. */
const EXAMPLES: [Case][] = [
  // The input of the last block, which stays where it was made, beside its reverse pass.
  [CHAIN],
  // The same on its way to host memory, of several micro-batches.
  [
    {
      ...CHAIN,
      model: { ...CHAIN.model, inner: 7, batchSize: 3, length: 4 },
      step: [CHAIN.step[0]!, CHAIN.step[0]!],
      wishes: { ...CHAIN.wishes, dtype: 'bfloat16', offloadOptimizer: 'cpu' },
      slack: { device: 0, host: 2_848_616 },
    },
  ],
];

describe.runIf(DEVICES.includes('native'))('on native', () => {
  it(
    'no step or evaluation takes more of the device than was planned',
    async () => {
      const meta = await createPlanningDevice('native', { budgetBytes: AMPLE.device });
      try {
        await fc.assert(
          fc.asyncProperty(
            randomCase,
            untilDeadline(TIME_LIMIT_MS, async (one: Case) => {
              const { planned, taken } = await deviceBytes(meta, one);
              expect(taken).toBeLessThanOrEqual(planned);
            }),
          ),
          { numRuns: 20_000, examples: EXAMPLES },
        );
      } finally {
        await meta.dispose();
      }
    },
    4 * TIME_LIMIT_MS,
  );
});
