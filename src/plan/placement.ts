/**
 * @file The words of a memory plan: homes, places, and what the planner is told and answers.
 */
import { type ComputeDtype, type StateName, type Tier } from '../../core/types.js';
import { type LayoutRequest } from '../../tiers/nvme/layout.js';
import type { Block } from '../model/block.js';
import type { StagingDepth } from '../optim/staging.js';
import type { BlockProfile } from './block-profile.js';
import type { ParamAddress, ParameterGroup, ParameterLayout } from './parameter-layout.js';
import type { RegionPlan } from './step-plan.js';

export type MicroBatchOrder = 'vertical' | 'horizontal';

/** A wish for the home of some states; `auto` lets the plan choose. DeepSpeed's words. */
export type OffloadDevice = 'none' | 'cpu' | 'nvme' | 'auto';

/** Home tier of each kind of state of one parameter group. */
export interface GroupHomes {
  param: Tier;
  grad: Tier;
  /** exp_avg, exp_avg_sq and master_lo. */
  optimizer: Tier;
}

/** A second (third, …) use of a tied parameter, which in horizontal order sums on its own. */
export interface UseAccumulator {
  readonly param: ParamAddress;
  readonly block: number;
}

export interface MemoryPlanInput {
  readonly blocks: readonly Block[];
  readonly layout: ParameterLayout;
  readonly profiles: readonly BlockProfile[];
  readonly budgets: Readonly<Record<Tier, number>>;
  readonly dtype: ComputeDtype;
  /** Most micro-batches per step. */
  readonly microBatchCount: number;
  readonly order: MicroBatchOrder;
  readonly offloadParam: OffloadDevice;
  readonly offloadOptimizer: OffloadDevice;
  readonly hostAddressableDevice: boolean;
  /** The device multiplies by bfloat16 matrices as they are. */
  readonly bf16Operands: boolean;
  /** Number of NVMe paths; 0 when there is none. */
  readonly nvmePathCount: number;
  /** Bytes of the batch fields that blocks read on the device, of one micro-batch. */
  readonly fieldBytes: number;
  /** Rows x columns x 4 of each row gather, at the largest batch. */
  readonly rowGatherBytes: readonly number[];
  /** Host bytes that the optimizer pool leases. */
  readonly optimizerStagingBytes: (depth: StagingDepth, nvmeStates: readonly StateName[]) => number;
}

export interface MemoryPlan {
  readonly order: MicroBatchOrder;
  readonly homes: readonly Readonly<GroupHomes>[];
  /** Tier of the input of block b for micro-batch m: `[b][m]`; empty for block 0. */
  readonly activationTiers: readonly (readonly Tier[])[];
  /** Micro-batches whose head passes share one reading of the tiles. */
  readonly headWave: number;
  readonly useAccumulators: readonly (UseAccumulator & { readonly tier: Tier })[];
  /** Where the device's region puts what is fetched. */
  readonly region: RegionPlan;
  /** See `StepInput.spillLag`. */
  readonly spillLag: 0 | 1;
  readonly stagingCount: number;
  readonly spillStagingCount: number;
  readonly optimizerDepth: StagingDepth;
  /** States of which some trainable shard is on NVMe. */
  readonly nvmeStates: readonly StateName[];
  readonly peakBytes: Readonly<Record<Tier, number>>;
  /** The smallest budgets that work, as a refusal names them. */
  readonly minimumBytes: Readonly<Record<Tier, number>>;
  readonly nvmeRequest: LayoutRequest;
}

/** States of a trainable group; frozen groups, and all in inference, have `param` only. */
export function statesOf(group: ParameterGroup, dtype: ComputeDtype): StateName[] {
  if (!group.trainable || group.purpose === 'inference') return ['param'];
  const states: StateName[] = ['param', 'grad', 'exp_avg', 'exp_avg_sq'];
  return dtype === 'bfloat16' ? [...states, 'master_lo'] : states;
}

/** Element type in which `state` is stored. */
export function stateType(
  state: StateName,
  dtype: ComputeDtype,
): 'float32' | 'bfloat16' | 'uint16' {
  if (state === 'param') return dtype;
  return state === 'master_lo' ? 'uint16' : 'float32';
}

/** Home tier of `state` of a group. */
export function homeOf(homes: Readonly<GroupHomes>, state: StateName): Tier {
  if (state === 'param') return homes.param;
  return state === 'grad' ? homes.grad : homes.optimizer;
}

/** Name of the scratch region of an activation slot, and of a use accumulator. */
export const scratchName = {
  activation: (block: number, microBatch: number) => `activation/${block}/${microBatch}`,
  accumulator: (param: string, block: number) => `accumulator/${param}/${block}`,
};

/** Uses of trainable parameters that need accumulators of their own in horizontal order: all but
 * the highest use of each, row gathers excepted (they sum in row buffers). */
export function useAccumulatorsOf(
  blocks: readonly Block[],
  layout: ParameterLayout,
  order: MicroBatchOrder,
  microBatchCount: number,
): UseAccumulator[] {
  if (order === 'vertical' || microBatchCount === 1) return [];
  return [...layout.params.values()].flatMap((param) => {
    if (param.spec.trainable === false) return [];
    const users = (layout.users.get(param.spec.name) ?? []).filter(
      (block) => blocks[block]?.kind !== 'row',
    );
    return users.slice(0, -1).map((block) => ({ param, block }));
  });
}
