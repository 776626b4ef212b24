/**
 * @file Plans where everything of a training run lives, before anything is reserved or loaded.
 *
 * An engine and `spillway plan` plan by the same function, so that one does what the other says.
 */
import { availableParallelism } from 'node:os';
import type { Tier } from '../../core/types.js';
import { createPlanningDevice } from '../../tiers/device/create-device.js';
import type { Device } from '../../tiers/device/device.js';
import type { MicroBatch, Model } from '../model/block.js';
import { stagingBytes, type StagingShape } from '../optim/staging.js';
import type { BlockProfile } from '../plan/block-profile.js';
import { planMemory } from '../plan/memory-plan.js';
import { layoutParameters, type ParameterLayout } from '../plan/parameter-layout.js';
import type { MemoryPlan } from '../plan/placement.js';
import { checkOptions } from './check-options.js';
import type { EngineOptions } from './engine-options.js';
import { fieldBytes } from './field-bytes.js';
import { budgetsOf, DEFAULTS, pathsOf } from './resources.js';
import { probeWorkspaces } from './workspace-probe.js';

/** Defaults that the configuration shares (docs/CONFIG.md). */
export const TRAINING_DEFAULTS = { learningRate: 2e-5, maxGradNorm: 1 };

/** What planning needs of an engine's options: the model's shapes, not its weights. */
export type PlanningOptions = Omit<EngineOptions, 'model'> & {
  readonly model: Pick<Model, 'blocks'>;
  /** The largest micro-batch of a step, where those of evaluations are larger. Default: the example
   * batch. */
  readonly stepBatch?: MicroBatch;
  /** The largest micro-batch that is evaluated. Default: nothing is. */
  readonly evaluationBatch?: MicroBatch;
};

/** A trainable table that is read by rows. */
export interface RowGather {
  readonly name: string;
  /** The most rows of one micro-batch. */
  readonly rows: number;
  readonly columns: number;
}

/** A plan, and the sizes that it was made with. */
export interface PlannedTraining {
  readonly plan: MemoryPlan;
  /** Of all blocks, at the shapes of the example batch. */
  readonly profiles: readonly BlockProfile[];
  /** At the shapes of the largest micro-batch of a step. */
  readonly stepProfiles: readonly BlockProfile[];
  /** Bytes of one activation checkpoint before block `block`. */
  readonly slotBytes: (block: number) => number;
  readonly staging: StagingShape;
  /** Threads of the optimizer pool. */
  readonly workers: number;
  readonly rowGathers: readonly RowGather[];
}

/** Whether updates wait for the global norm. */
export function clipsOf({ optimizer = {} }: Pick<PlanningOptions, 'optimizer'>): boolean {
  return (optimizer.maxGradNorm ?? TRAINING_DEFAULTS.maxGradNorm) > 0;
}

/**
 * Plans by profiles that `device` gives.
 *
 * @param profiles of an earlier plan, where only budgets differ
 * @throws BUDGET_TOO_SMALL with the smallest budgets that work; CONFIG_INVALID for wishes that
 *   contradict the machine; what blocks throw for the example batch
 */
export function planOn(
  device: Device,
  options: PlanningOptions,
  layout: ParameterLayout,
  budgets: Readonly<Record<Tier, number>>,
  profiles: readonly BlockProfile[] = profilesOn(device, options, layout),
): PlannedTraining {
  const { model } = options;
  const dtype = options.dtype ?? 'float32';
  const workers = options.optimizerWorkers ?? Math.min(2, availableParallelism());
  const rowGathers = rowGathersOf(options, layout);
  const trainable = layout.groups.filter((group) => group.trainable);
  const lengths = trainable.flatMap((group) => group.shards.map((shard) => shard.length));
  const maxShardLength = lengths.reduce((most, length) => Math.max(most, length), 1);
  const plan = planMemory({
    blocks: model.blocks,
    layout,
    profiles,
    budgets,
    dtype,
    microBatchCount: options.gradientAccumulationSteps ?? 1,
    order: options.microBatchOrder ?? 'auto',
    offloadParam: options.offloadParam ?? 'auto',
    offloadOptimizer: options.offloadOptimizer ?? 'auto',
    hostAddressableDevice: device.capabilities.hostAddressable,
    bf16Operands: device.capabilities.bf16Operands,
    nvmePathCount: pathsOf(options).length,
    fieldBytes: fieldBytes(options.model.blocks, options.exampleBatch),
    rowGatherBytes: rowGathers.map(({ rows, columns }) => rows * columns * 4),
    optimizerStagingBytes: (depth, nvmeStates) =>
      stagingBytes({ dtype, depth, nvmeStates, maxShardLength, workers }),
  });
  const { nvmeStates, optimizerDepth: depth } = plan;
  const { stepBatch } = options;
  return {
    plan,
    profiles,
    stepProfiles:
      stepBatch === undefined
        ? profiles
        : profilesOn(device, { ...options, exampleBatch: stepBatch }, layout),
    slotBytes: (block) => profiles[block - 1]?.outputBytes ?? 0,
    staging: { dtype, nvmeStates, depth, maxShardLength },
    workers,
    rowGathers,
  };
}

function profilesOn(
  device: Device,
  { model, exampleBatch, dtype = 'float32' }: PlanningOptions,
  layout: ParameterLayout,
): BlockProfile[] {
  return probeWorkspaces(device, model.blocks, layout, exampleBatch, dtype);
}

function rowGathersOf(options: PlanningOptions, layout: ParameterLayout): RowGather[] {
  const [first] = options.model.blocks;
  if (first?.kind !== 'row') return [];
  return first.gathers.flatMap((gather) => {
    const address = layout.params.get(gather.param);
    if (address === undefined || address.spec.trainable === false) return [];
    return [
      {
        name: gather.param,
        rows: gather.indices(options.exampleBatch.fields).length,
        columns: address.length / (address.spec.shape[0] ?? 1),
      },
    ];
  });
}

/** The plan of an engine that does not exist. */
export interface TrainingPlan {
  readonly layout: ParameterLayout;
  readonly budgets: Readonly<Record<Tier, number>>;
  readonly plan: MemoryPlan;
}

/**
 * The plan that `Engine.create` would make of `options`; reserves no memory and no files. On a
 * device without a `meta` twin each kind of block runs once on zeros.
 *
 * @throws what `Engine.create` throws before it reserves anything
 */
export async function planTraining(options: PlanningOptions): Promise<TrainingPlan> {
  checkOptions(options);
  const budgets = budgetsOf(options);
  const { blocks } = options.model;
  const layout = layoutParameters(blocks, options.subGroupSize ?? DEFAULTS.subGroupSize);
  const device = await createPlanningDevice(options.device ?? 'auto', {
    budgetBytes: budgets.device,
  });
  try {
    return { layout, budgets, plan: planOn(device, options, layout, budgets).plan };
  } finally {
    await device.dispose();
  }
}
