/**
 * @file The plan of a step over given micro-batches: built once per set of shapes.
 *
 * Owns nothing but the plans that it keeps.
 */
import type { ComputeDtype, Link } from '../../core/types.js';
import type { Block, MicroBatch } from '../model/block.js';
import type { BlockProfile } from '../plan/block-profile.js';
import { buildStep, stepBytes } from '../plan/build-step.js';
import type { ParameterLayout } from '../plan/parameter-layout.js';
import type { MemoryPlan } from '../plan/placement.js';
import type { StepInput } from '../plan/step-input.js';
import type { StepPlan } from '../plan/step-plan.js';
import { Kept } from './kept.js';
import {
  KEPT_SHAPES,
  MicroBatchShapes,
  shapeKey,
  type OutputLengths,
} from './micro-batch-shapes.js';

/** What plans are made from. */
export interface StepPlannerParts {
  readonly blocks: readonly Block[];
  readonly layout: ParameterLayout;
  readonly plan: MemoryPlan;
  readonly dtype: ComputeDtype;
  readonly bf16Operands: boolean;
  readonly clips: boolean;
  /** Elements that the place of each block's input is made for. */
  readonly slotLengths: readonly number[];
  /** Profiles of all blocks at the shapes of a micro-batch. */
  readonly profilesOf: (batch: MicroBatch) => readonly BlockProfile[];
}

export class StepPlanner {
  readonly #parts: StepPlannerParts;
  readonly #plans = new Kept<StepPlan>(KEPT_SHAPES);
  readonly #shapes: MicroBatchShapes;

  constructor(parts: StepPlannerParts) {
    this.#parts = parts;
    this.#shapes = new MicroBatchShapes(parts.blocks, (batch) =>
      lengthsOf(parts.profilesOf(batch)),
    );
  }

  /** The plan of a step over micro-batches of these shapes. */
  planFor(batches: readonly MicroBatch[]): StepPlan {
    return this.#plans.get(batches.map(shapeKey).join(' '), () =>
      buildStep(this.#inputOf(batches)),
    );
  }

  /** What the plan of such a step moves on each link; made and forgotten. */
  bytesFor(batches: readonly MicroBatch[]): Record<Link, number> {
    return stepBytes(this.#inputOf(batches));
  }

  #inputOf(batches: readonly MicroBatch[]): StepInput {
    const { plan, blocks, layout, dtype, bf16Operands, clips, slotLengths } = this.#parts;
    return {
      blocks,
      layout,
      homes: plan.homes,
      plan,
      region: plan.region,
      spillLag: plan.spillLag,
      dtype,
      bf16Operands,
      clips,
      slotLengths,
      microBatches: batches.map((batch) => this.#shapes.of(batch)),
    };
  }
}

/** What blocks of these profiles make. */
export function lengthsOf(profiles: readonly BlockProfile[]): OutputLengths {
  const last = profiles.at(-1);
  return {
    outputs: profiles.map(({ outputBytes }) => outputBytes / 4),
    losses: (last?.tiled?.lossBytes ?? last?.outputBytes ?? 0) / 4,
  };
}
