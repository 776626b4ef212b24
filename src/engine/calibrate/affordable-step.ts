/**
 * @file Which step is measured in the time there is: a few blocks of each kind, rows as long as in the
 * run.
 *
 * Where that would take too long, one block of each kind runs, once if need be, and only then are
 * rows shortened: times of longer ones are scaled by their multiply-adds, and come out too long, since
 * short rows compute more slowly.
 */
import { isCoded } from '../../../core/errors.js';
import { createPlanningDevice } from '../../../tiers/device/create-device.js';
import type { Block, MicroBatch } from '../../model/block.js';
import { computeWork } from '../../plan/compute-work.js';
import { layoutParameters, type ParameterLayout } from '../../plan/parameter-layout.js';
import type { Compute, StepPlan } from '../../plan/step-plan.js';
import { packingOf, stepOf } from '../forecast-training.js';
import { planOn, type PlannedTraining, type PlanningOptions } from '../plan-training.js';
import { budgetsOf, DEFAULTS } from '../resources.js';

/** What is measured: a run's options, and its largest micro-batch at other lengths. */
export interface ComputeRequest {
  readonly options: Omit<PlanningOptions, 'exampleBatch'>;
  /** Longest row. */
  readonly length: number;
  readonly batchOf: (length: number) => MicroBatch;
}

/** A step as it is measured. */
export interface PlannedStep {
  readonly options: PlanningOptions;
  readonly layout: ParameterLayout;
  readonly planned: PlannedTraining;
  readonly step: StepPlan;
  readonly workOf: ReturnType<typeof computeWork>;
}

/**
 * What is measured while there is time for it, the better first: so many blocks of each kind, in so
 * many rounds. More than one block, so that the next one's parameters are not in the processor's
 * cache; those of blocks that take long do not fit into any. A round and a half is the first, which
 * counts for what has no time to run again, and some time to spare.
 */
const EFFORTS = [
  { perKind: 3, rounds: 4 },
  { perKind: 1, rounds: 1.5 },
] as const;

/**
 * The best that is measured within `seconds`, by the machine's rate.
 *
 * @throws as `planTraining` does
 */
export async function affordableStep(
  request: ComputeRequest,
  multiplyAddsPerSecond: number,
  seconds: number,
): Promise<PlannedStep> {
  for (let { length } = request; ; length = Math.ceil(length / 2)) {
    for (const [index, { perKind, rounds }] of EFFORTS.entries()) {
      const planned = await plannedStep(stepOptions(request, perKind, length));
      const works = computesOf(planned.step).map(planned.workOf);
      const multiplyAdds = works.reduce((sum, work) => sum + work.multiplyAdds, 0);
      const isLast = length === 1 && index === EFFORTS.length - 1;
      if (isLast || (multiplyAdds / multiplyAddsPerSecond) * rounds < seconds) return planned;
    }
  }
}

/** Everything is fetched, so that parameters lie in the region as in a run that offloads. */
function stepOptions(
  { options, batchOf }: ComputeRequest,
  perKind: number,
  length: number,
): PlanningOptions {
  return {
    ...options,
    model: { blocks: fewOfEachKind(options.model.blocks, perKind) },
    exampleBatch: batchOf(length),
    gradientAccumulationSteps: 1,
    offloadParam: 'cpu',
    offloadOptimizer: 'cpu',
    hostMemory: Number.MAX_SAFE_INTEGER,
  };
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

function computesOf({ operations }: StepPlan): Compute[] {
  return operations.flatMap(({ lane, action }) => (lane === 'compute' ? [action as Compute] : []));
}

/** The first blocks of each kind and the last block; all of them where a shorter chain lacks a
 * parameter that some of them share. */
function fewOfEachKind(blocks: readonly Block[], perKind: number): readonly Block[] {
  const counts = new Map<string, number>();
  const some = blocks.filter((block, index) => {
    const kind = `${block.kind} ${block.kindKey}`;
    const count = (counts.get(kind) ?? 0) + 1;
    counts.set(kind, count);
    return count <= perKind || index === blocks.length - 1;
  });
  try {
    layoutParameters(some, DEFAULTS.subGroupSize);
    return some;
  } catch (error) {
    if (isCoded(error) && error.code === 'BLOCK_INVALID') return blocks;
    throw error;
  }
}
