/**
 * @file What the memory planner decides, step by step.
 */
import type { Tier } from '../../core/types.js';
import type { StagingDepth } from '../optim/staging.js';
import type { GroupHomes } from './placement.js';

/** Decisions about the whole step. */
export interface Choices {
  headWave: number;
  /** Slots of the region, by kind; see RegionPlan. */
  paramSlots: number;
  activationSlots: number;
  tileSlots: number;
  /** Whether tiles of the head have memory of their own, so that parameters stay for backward. */
  tilesApart: boolean;
  spillLag: 0 | 1;
  stagingCount: number;
  spillStagingCount: number;
  optimizerDepth: StagingDepth;
}

/** All decisions: choices, and the tier of each thing that has one. */
export interface Decisions extends Choices {
  homes: GroupHomes[];
  /** By block and activation slot. */
  activationTiers: Tier[][];
  /** Of `useAccumulatorsOf`, in its order. */
  accumulatorTiers: Tier[];
}
