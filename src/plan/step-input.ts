/**
 * @file What a step plan, or an evaluation's, is made from.
 */
import type { Block } from '../model/block.js';
import type { PackingInput } from './packed-params.js';
import type { MemoryPlan } from './placement.js';
import type { RegionPlan } from './step-plan.js';

/** Sizes of one micro-batch. */
export interface MicroBatchShape {
  /** Elements of the input of each block; 0 for the first. */
  readonly activationLengths: readonly number[];
  /** Rows of each gather of the first block. */
  readonly gatherRows: readonly number[];
  /** Elements of the losses that the last block gives. */
  readonly lossLength: number;
  /** Bytes of the batch fields by name. */
  readonly fieldBytes: Readonly<Record<string, number>>;
}

/** What any pass over the blocks is made from. */
export interface PassInput extends PackingInput {
  readonly blocks: readonly Block[];
  /** Of an evaluation: `vertical` keeps an activation of each micro-batch on the device, `horizontal`
   * one in all. */
  readonly plan: Pick<MemoryPlan, 'order'>;
  readonly region: RegionPlan;
  readonly microBatches: readonly MicroBatchShape[];
}

export interface StepInput extends PassInput {
  readonly plan: Pick<
    MemoryPlan,
    'order' | 'homes' | 'activationTiers' | 'headWave' | 'useAccumulators'
  >;
  /** Compute operations that may start while outputs of the one before are still on their way. */
  readonly spillLag: 0 | 1;
  /** Elements that the place of each block's input is made for: the largest batch's. */
  readonly slotLengths: readonly number[];
  /** Whether updates wait for the global norm. */
  readonly clips: boolean;
}
