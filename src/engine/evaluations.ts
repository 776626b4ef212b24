/**
 * @file Evaluations: mean losses by forward passes, which are plans that the executor runs like a
 * step's. So parameters are fetched ahead, and compute is that of training in every bit.
 */
import { SpillwayError } from '../../core/errors.js';
import type { Block, BlockAux, MicroBatch } from '../model/block.js';
import type { ActivationShapes } from './activation-shapes.js';
import { checkBatch } from './check-batch.js';
import type { EvaluationPlanner } from './evaluation-planner.js';
import { LossSum } from './loss-sum.js';
import type { StepExecutor } from './step-executor.js';

/** What evaluations work with; the engine owns all of it. */
export interface EvaluationParts {
  readonly blocks: readonly Block[];
  readonly planner: EvaluationPlanner;
  readonly executor: StepExecutor;
  readonly shapes: ActivationShapes;
  /** The largest shapes that memory is planned for. */
  readonly exampleBatch: MicroBatch;
  readonly seed: number;
}

export class Evaluations {
  readonly #parts: EvaluationParts;

  constructor(parts: EvaluationParts) {
    this.#parts = parts;
  }

  /**
   * Mean loss over micro-batches; those without loss terms are left out.
   *
   * @param step optimizer steps taken, for traces
   * @returns the loss and the number of loss terms
   * @throws DATA_EMPTY when there are none; NON_FINITE naming the last block, DATA_INVALID; anything
   *   that moves or computes may throw
   */
  async run(batches: Iterable<MicroBatch>, step = 0): Promise<{ loss: number; terms: number }> {
    let lossSum = 0;
    let terms = 0;
    for (const some of this.#groups(batches)) {
      // A batch's sum is complete before it is added, so that groups change no bit.
      for (const sum of await this.#sums(some, step)) lossSum += sum;
      for (const { weight } of some) terms += weight;
    }
    if (terms === 0) throw new SpillwayError('DATA_EMPTY', 'there are no loss terms to evaluate');
    return { loss: lossSum / terms, terms };
  }

  /** Batches with loss terms, as many at a time as one plan takes. */
  *#groups(batches: Iterable<MicroBatch>): Generator<MicroBatch[]> {
    const { planner, exampleBatch } = this.#parts;
    let group: MicroBatch[] = [];
    for (const batch of batches) {
      checkBatch(batch, exampleBatch);
      if (batch.weight === 0) continue;
      group.push(batch);
      if (group.length < planner.most) continue;
      yield group;
      group = [];
    }
    if (group.length > 0) yield group;
  }

  /** The sum of each batch's losses. */
  async #sums(batches: readonly MicroBatch[], step: number): Promise<number[]> {
    const { blocks, planner, executor, shapes, seed } = this.#parts;
    const sums = batches.map(() => new LossSum(blocks.at(-1)?.name ?? ''));
    // To blocks each batch is the only one: what they compute does not depend on groups.
    const aux = batches.map(({ fields, weight }): BlockAux => ({
      fields,
      tensors: {},
      lossScale: 1 / weight,
      seed,
      step: 0,
      microBatch: 0,
      block: 0,
    }));
    const { finished } = executor.start(planner.planFor(batches), {
      step,
      isEvaluation: true,
      aux,
      losses: (microBatch) => sums[microBatch]!,
      inputShape: shapes.of,
    });
    await finished;
    return sums.map(({ value }) => value);
  }
}
