/**
 * @file What a step of a planned run would move, hold and take, before anything is reserved: the
 * engine's own step plan over its largest batch, simulated.
 */
import { LINKS, type Lane, type Link, type Tier } from '../../core/types.js';
import { createPlanningDevice } from '../../tiers/device/create-device.js';
import type { Device } from '../../tiers/device/device.js';
import { computeWork } from '../plan/compute-work.js';
import {
  CPU_MULTIPLY_ADDS_PER_SECOND,
  DEFAULT_COSTS,
  stepCosts,
  type MachineCosts,
  type StepCosts,
} from '../plan/costs.js';
import type { PackingInput } from '../plan/packed-params.js';
import { layoutParameters, type ParameterLayout } from '../plan/parameter-layout.js';
import type { MemoryPlan } from '../plan/placement.js';
import { simulate } from '../plan/simulate.js';
import { bytesPerLink, bytesPerPhase, type Phase, type StepPlan } from '../plan/step-plan.js';
import type { Timeline } from '../plan/timeline.js';
import { transferWork } from '../plan/transfer-work.js';
import { checkOptions } from './check-options.js';
import { EvaluationPlanner } from './evaluation-planner.js';
import {
  clipsOf,
  planOn,
  type PlannedTraining,
  type PlanningOptions,
  type TrainingPlan,
} from './plan-training.js';
import { budgetsOf, DEFAULTS } from './resources.js';
import { simulateDevice } from './simulate-device.js';
import { lengthsOf, StepPlanner } from './step-planner.js';
import { probeWorkspaces } from './workspace-probe.js';

export type LinkBytes = Readonly<Record<Link, number>>;

/** What a larger budget of one tier would save. */
export interface LargerBudget {
  readonly budgetBytes: number;
  /** Fewer bytes per step on each link; negative where it moves more. */
  readonly savedBytes: LinkBytes;
}

/** A plan, and its steps over the largest micro-batches. */
export interface TrainingForecast extends TrainingPlan {
  readonly step: StepPlan;
  readonly bytesPerStep: LinkBytes;
  readonly bytesPerPhase: Readonly<Record<Phase, LinkBytes>>;
  /** Exact, by phase; undefined on a device that only a run tells about. */
  readonly devicePeaks: Readonly<Record<Phase, number>> | undefined;
  /** Of the device, exact, while something is evaluated. */
  readonly evaluationPeak: number | undefined;
  readonly timeline: Timeline;
  /** What the timeline was simulated by. */
  readonly costs: StepCosts;
  /** Seconds in which each lane is busy in a steady step. */
  readonly secondsPerLane: Readonly<Record<Lane, number>>;
  readonly largerBudgets: Readonly<Record<'device' | 'host', LargerBudget>>;
  /** What costs are defaults rather than this machine's. */
  readonly unmeasured: readonly string[];
}

/** Costs by the device's name and the optimizer's workers. */
export type CostsFor = (
  device: string,
  workers: number,
) => Promise<{ readonly costs: MachineCosts; readonly missing: readonly string[] }>;

/** How much more of a budget is tried. */
const LARGER = 1.25;

/** Steps that are simulated: the second begins beside the update of the first, as all later ones. */
const STEPS = 2;

/**
 * Plans a run and simulates its steps; reserves no memory and no files.
 *
 * @param costsFor what is known of a device and of so many workers; default: documented defaults
 * @throws as `planTraining`, and as `costsFor`
 */
export async function forecastTraining(
  options: PlanningOptions,
  costsFor: CostsFor = (device) =>
    Promise.resolve({ costs: defaultCosts(device), missing: ['all'] }),
): Promise<TrainingForecast> {
  checkOptions(options);
  const budgets = budgetsOf(options);
  const { blocks } = options.model;
  const layout = layoutParameters(blocks, options.subGroupSize ?? DEFAULTS.subGroupSize);
  const device = await createPlanningDevice(options.device ?? 'auto', {
    budgetBytes: budgets.device,
  });
  try {
    const planned = planOn(device, options, layout, budgets);
    const { plan } = planned;
    const packing = packingOf(device, options, layout, planned);
    const step = stepOf(options, packing, planned);
    const { costs: machine, missing } = await costsFor(realName(device), planned.workers);
    const costs = costsOf(device, options, layout, planned, machine);
    const timeline = simulate({ plan: step, repeat: STEPS }, costs);
    const batches = batchesOf(options);
    const bytesPerStep = bytesPerLink(step);
    return {
      layout,
      budgets,
      plan,
      step,
      bytesPerStep,
      bytesPerPhase: bytesPerPhase(step),
      devicePeaks: isMeta(device)
        ? await simulateDevice(device, { ...packing, blocks, plan, step, batches })
        : undefined,
      evaluationPeak: await evaluationPeakOf(device, options, packing, plan),
      timeline,
      costs,
      secondsPerLane: timeline.steps.at(-1)!.busySeconds,
      unmeasured: missing,
      largerBudgets: largerBudgets(device, options, layout, planned, budgets, bytesPerStep),
    };
  } finally {
    await device.dispose();
  }
}

/** Other devices have no twin without memory: only a run tells what they allocate. */
const isMeta = (device: Device): boolean => device.name === 'meta';

/** Name of the device that a planning device stands for. */
const realName = (device: Device): string => (isMeta(device) ? 'native' : device.name);

/** Costs of a planned step. */
export function costsOf(
  device: Device,
  options: PlanningOptions,
  layout: ParameterLayout,
  { plan, stepProfiles: profiles, workers }: PlannedTraining,
  costs: MachineCosts,
): StepCosts {
  const { stagingCount: read, spillStagingCount: write, homes } = plan;
  const { blocks } = options.model;
  const dtype = options.dtype ?? 'float32';
  const outputShape = (block: number) => profiles[block]!.outputShape;
  return stepCosts(costs, {
    workers,
    buffers: { read, write },
    workOf: computeWork({ blocks, layout, dtype, outputShape }),
    transferWork: transferWork({ blocks, layout, homes, dtype }),
  });
}

/** Costs of a machine that `spillway tune` has not measured. */
export function defaultCosts(deviceName: string): MachineCosts {
  if (deviceName !== 'cpu') return DEFAULT_COSTS;
  return { ...DEFAULT_COSTS, multiplyAddsPerSecond: CPU_MULTIPLY_ADDS_PER_SECOND };
}

export function packingOf(
  device: Device,
  options: PlanningOptions,
  layout: ParameterLayout,
  { plan }: PlannedTraining,
): PackingInput {
  const { bf16Operands } = device.capabilities;
  return { layout, homes: plan.homes, dtype: options.dtype ?? 'float32', bf16Operands };
}

/** The step over as many of the largest micro-batch as a step takes. */
export function stepOf(
  options: PlanningOptions,
  packing: PackingInput,
  planned: PlannedTraining,
): StepPlan {
  return plannerOf(options, packing, planned).planFor(batchesOf(options));
}

function plannerOf(
  options: PlanningOptions,
  packing: PackingInput,
  { plan, stepProfiles, slotBytes }: PlannedTraining,
): StepPlanner {
  const { blocks } = options.model;
  return new StepPlanner({
    ...packing,
    blocks,
    plan,
    clips: clipsOf(options),
    slotLengths: blocks.map((_, index) => slotBytes(index) / 4),
    profilesOf: () => stepProfiles,
  });
}

export function batchesOf({
  exampleBatch,
  stepBatch = exampleBatch,
  gradientAccumulationSteps = 1,
}: PlanningOptions) {
  return Array.from({ length: gradientAccumulationSteps }, () => stepBatch);
}

/** Highest bytes on the device while the largest micro-batch is evaluated, if any. */
async function evaluationPeakOf(
  device: Device,
  { model: { blocks }, evaluationBatch }: PlanningOptions,
  packing: PackingInput,
  plan: MemoryPlan,
): Promise<number | undefined> {
  if (evaluationBatch === undefined || !isMeta(device)) return undefined;
  const { layout, dtype } = packing;
  const planner = new EvaluationPlanner({
    ...packing,
    blocks,
    plan: { order: 'horizontal' },
    region: plan.region,
    most: 1,
    lengthsOf: (batch) => lengthsOf(probeWorkspaces(device, blocks, layout, batch, dtype)),
  });
  const batches = [evaluationBatch];
  const step = planner.planFor(batches);
  const peaks = await simulateDevice(device, { ...packing, blocks, plan, step, batches });
  return Math.max(...Object.values(peaks));
}

/** What a quarter more of a tier's budget would save. */
function largerBudgets(
  device: Device,
  options: PlanningOptions,
  layout: ParameterLayout,
  planned: PlannedTraining,
  budgets: Readonly<Record<Tier, number>>,
  moved: LinkBytes,
): TrainingForecast['largerBudgets'] {
  const larger = (tier: 'device' | 'host'): LargerBudget => {
    const budgetBytes = Math.floor(budgets[tier] * LARGER);
    const more = { ...budgets, [tier]: budgetBytes };
    const other = planOn(device, options, layout, more, planned.profiles);
    const packing = packingOf(device, options, layout, other);
    const less = plannerOf(options, packing, other).bytesFor(batchesOf(options));
    const saved = LINKS.map((link) => [link, moved[link] - less[link]] as const);
    return { budgetBytes, savedBytes: Object.fromEntries(saved) as Record<Link, number> };
  };
  return { device: larger('device'), host: larger('host') };
}
