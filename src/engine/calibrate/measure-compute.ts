/**
 * @file Measures the compute operations of a model's blocks: a step over one of each kind runs a few
 * times, on the real device, by the code that the executor runs.
 *
 * A batch that would take too long is shortened; times of longer ones are then scaled by their
 * multiply-adds. Values are constants, since no kernel's time depends on them.
 */
import { isCoded } from '../../../core/errors.js';
import { createDevice, createPlanningDevice } from '../../../tiers/device/create-device.js';
import type { DeviceRegion } from '../../../tiers/device/device.js';
import type { Block, MicroBatch } from '../../model/block.js';
import { computeWork } from '../../plan/compute-work.js';
import { DEFAULT_COSTS, type MeasuredCompute } from '../../plan/costs.js';
import { layoutParameters, type ParameterLayout } from '../../plan/parameter-layout.js';
import type { Compute, StepPlan } from '../../plan/step-plan.js';
import { batchesOf, packingOf, stepOf } from '../forecast-training.js';
import { planOn, type PlannedTraining, type PlanningOptions } from '../plan-training.js';
import { budgetsOf, DEFAULTS } from '../resources.js';
import { withComputeRunner } from '../simulate-device.js';
import { median } from './median.js';

/** What is measured: a run's options, and its largest micro-batch at other lengths. */
export interface ComputeRequest {
  readonly options: Omit<PlanningOptions, 'exampleBatch'>;
  /** Longest row. */
  readonly length: number;
  readonly batchOf: (length: number) => MicroBatch;
  /** Seconds to spend, about. */
  readonly seconds: number;
}

/** Rounds at least, and at most. */
const ROUNDS = { least: 3, most: 9 };

/** As float32 and as bfloat16 twice, 2^-7. */
const FILLING = 0x3c003c00;

const FILL_BYTES = 2 ** 20;

/** Medians by operation, for blocks of each kind. @throws as `planTraining` and blocks do */
export async function measureCompute(request: ComputeRequest): Promise<MeasuredCompute[]> {
  const { seconds } = request;
  // Everything is fetched, so that parameters lie in the region as in a run that offloads.
  const options: Omit<PlanningOptions, 'exampleBatch'> = {
    ...request.options,
    model: { blocks: oneOfEachKind(request.options.model.blocks) },
    gradientAccumulationSteps: 1,
    offloadParam: 'cpu',
    offloadOptimizer: 'cpu',
    hostMemory: Number.MAX_SAFE_INTEGER,
  };
  let { length } = request;
  for (;;) {
    const planned = await plannedStep({ ...options, exampleBatch: request.batchOf(length) });
    const works = computesOf(planned.step).map(planned.workOf);
    const multiplyAdds = works.reduce((sum, work) => sum + work.multiplyAdds, 0);
    const expected = multiplyAdds / DEFAULT_COSTS.multiplyAddsPerSecond;
    if (length > 1 && expected * (ROUNDS.least + 1) > seconds) {
      length = Math.ceil(length / 2);
      continue;
    }
    return run(planned, seconds);
  }
}

interface PlannedStep {
  readonly options: PlanningOptions;
  readonly layout: ParameterLayout;
  readonly planned: PlannedTraining;
  readonly step: StepPlan;
  readonly workOf: ReturnType<typeof computeWork>;
}

async function plannedStep(options: PlanningOptions): Promise<PlannedStep> {
  const { blocks } = options.model;
  const budgets = budgetsOf(options);
  const layout = layoutParameters(blocks, options.subGroupSize ?? DEFAULTS.subGroupSize);
  const name = options.device ?? 'auto';
  const device = await createPlanningDevice(name, { budgetBytes: budgets.device });
  try {
    const planned = planOn(device, options, layout, budgets);
    const step = stepOf(options, packingOf(device, options, layout, planned), planned);
    const { profiles } = planned;
    const dtype = options.dtype ?? 'float32';
    const outputShape = (block: number) => profiles[block]!.outputShape;
    const workOf = computeWork({ blocks, layout, dtype, outputShape });
    return { options, layout, planned, step, workOf };
  } finally {
    await device.dispose();
  }
}

async function run(plannedOf: PlannedStep, seconds: number): Promise<MeasuredCompute[]> {
  const { options, layout, planned, step, workOf } = plannedOf;
  const times = new Map<string, number[]>();
  const budgetBytes = budgetsOf(options).device;
  const device = await createDevice(options.device ?? 'auto', { budgetBytes });
  try {
    const packing = packingOf(device, options, layout, planned);
    const { plan } = planned;
    const { blocks } = options.model;
    const simulation = { ...packing, blocks, plan, step, batches: batchesOf(options) };
    const until = performance.now() + seconds * 1000;
    for (let round = 0; round <= ROUNDS.most; round += 1) {
      if (round > ROUNDS.least && performance.now() > until) break;
      await withComputeRunner(device, simulation, async ({ runner, region }) => {
        await fill(region);
        for (const operation of step.operations) {
          if (operation.lane !== 'compute') continue;
          const action = operation.action as Compute;
          const start = performance.now();
          await runner.run(operation, action);
          await device.computed();
          const { key } = workOf(action);
          // The first touches memory.
          if (round > 0) times.set(key, [...(times.get(key) ?? []), performance.now() - start]);
        }
      });
    }
  } finally {
    await device.dispose();
  }
  const works = new Map(computesOf(step).map((action) => [workOf(action).key, workOf(action)]));
  return [...times].map(([key, some]) => ({ ...works.get(key)!, seconds: median(some) / 1000 }));
}

/** Memory that was never written to is one page of zeros, which no run reads that fast. */
async function fill(region: DeviceRegion): Promise<void> {
  const pattern = new Uint8Array(new SharedArrayBuffer(FILL_BYTES));
  new Uint32Array(pattern.buffer).fill(FILLING);
  for (let offset = 0; offset < region.byteLength; offset += FILL_BYTES) {
    const bytes = Math.min(FILL_BYTES, region.byteLength - offset);
    await region.write(offset, pattern.subarray(0, bytes), 'float32', 'float32');
  }
}

function computesOf({ operations }: StepPlan): Compute[] {
  return operations.flatMap(({ lane, action }) => (lane === 'compute' ? [action as Compute] : []));
}

/** The first block of each kind and the last block; all of them where a shorter chain lacks a
 * parameter that some of them share. */
function oneOfEachKind(blocks: readonly Block[]): readonly Block[] {
  const kinds = new Set<string>();
  const some = blocks.filter((block, index) => {
    const kind = `${block.kind} ${block.kindKey}`;
    const isNew = !kinds.has(kind);
    kinds.add(kind);
    return isNew || index === blocks.length - 1;
  });
  try {
    layoutParameters(some, DEFAULTS.subGroupSize);
    return some;
  } catch (error) {
    if (isCoded(error) && error.code === 'BLOCK_INVALID') return blocks;
    throw error;
  }
}
