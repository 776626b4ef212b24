/**
 * @file The plan of a sequence's continuation: built once per number of tokens, then placed.
 *
 * Owns nothing but the plans that it keeps.
 */
import type { BlockAux } from '../model/block.js';
import {
  buildContinuation,
  withCache,
  type ContinuationInput,
} from '../plan/build-continuation.js';
import { withSparseRows } from '../plan/sparse-rows.js';
import type { StepPlan } from '../plan/step-plan.js';
import { Kept } from './kept.js';

/** What plans are made from. */
export type ContinuationPlannerParts = Omit<
  ContinuationInput,
  'microBatches' | 'count' | 'continues' | 'wantsLogits'
>;

/** Tokens that come. */
export interface NextTokens {
  /** Tokens before them. */
  readonly first: number;
  readonly count: number;
  readonly wantsLogits: boolean;
}

/** Numbers of tokens whose plans are kept: one at a time, whole parts, and ends of prompts. */
const KEPT_COUNTS = 16;

export class ContinuationPlanner {
  readonly #parts: ContinuationPlannerParts;
  readonly #plans = new Kept<StepPlan>(KEPT_COUNTS);

  constructor(parts: ContinuationPlannerParts) {
    this.#parts = parts;
  }

  /** @param fields of the tokens, which say what rows they gather */
  planFor(fields: BlockAux['fields'], { first, count, wantsLogits }: NextTokens): StepPlan {
    const parts = this.#parts;
    const continues = first > 0;
    const plan = this.#plans.get([count, continues, wantsLogits].join(), () => {
      const [block] = parts.blocks;
      const gathers = block?.kind === 'row' ? block.gathers : [];
      const gatherRows = gathers.map((gather) => gather.indices(fields, first).length);
      const tokens = { activationLengths: [], gatherRows, lossLength: 0, fieldBytes: {} };
      const input = { ...parts, microBatches: [tokens], count, continues, wantsLogits };
      return buildContinuation(input);
    });
    return withSparseRows(withCache(plan, parts, first), parts, [fields], first);
  }
}
