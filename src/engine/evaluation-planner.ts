/**
 * @file The plan of an evaluation over given micro-batches: built once per set of shapes, but for what
 * depends on their tokens.
 *
 * Owns nothing but the plans that it keeps.
 */
import type { MicroBatch } from '../model/block.js';
import { buildEvaluation } from '../plan/build-evaluation.js';
import { withSparseRows } from '../plan/sparse-rows.js';
import type { PassInput } from '../plan/step-input.js';
import type { StepPlan } from '../plan/step-plan.js';
import { Kept } from './kept.js';
import {
  KEPT_SHAPES,
  MicroBatchShapes,
  shapeKey,
  type OutputLengths,
} from './micro-batch-shapes.js';

/** What plans are made from. */
export interface EvaluationPlannerParts extends Omit<PassInput, 'microBatches'> {
  /** Most micro-batches of one plan. */
  readonly most: number;
  readonly lengthsOf: (batch: MicroBatch) => OutputLengths;
}

export class EvaluationPlanner {
  readonly #parts: EvaluationPlannerParts;
  readonly #plans = new Kept<StepPlan>(KEPT_SHAPES);
  readonly #shapes: MicroBatchShapes;

  constructor(parts: EvaluationPlannerParts) {
    this.#parts = parts;
    this.#shapes = new MicroBatchShapes(parts.blocks, parts.lengthsOf);
  }

  /** Most micro-batches of one plan. */
  get most(): number {
    return this.#parts.most;
  }

  /** The plan over these micro-batches, at most `most`. */
  planFor(batches: readonly MicroBatch[]): StepPlan {
    const plan = this.#plans.get(batches.map(shapeKey).join(' '), () =>
      buildEvaluation({
        ...this.#parts,
        microBatches: batches.map((batch) => this.#shapes.of(batch)),
      }),
    );
    const fields = batches.map((batch) => batch.fields);
    return withSparseRows(plan, this.#parts, fields);
  }
}
