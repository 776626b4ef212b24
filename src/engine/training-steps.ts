/**
 * @file Training steps: what belongs to one step, around the executor that runs its plan.
 */
import { SpillwayError, assert } from '../../core/errors.js';
import type { BlockAux, MicroBatch } from '../model/block.js';
import { clipCoefficient, gradientNorm } from '../optim/grad-norm.js';
import type { ParameterLayout } from '../plan/parameter-layout.js';
import type { ActivationShapes } from './activation-shapes.js';
import type { GradientWriter } from './gradient-writer.js';
import { LossSum } from './loss-sum.js';
import type { RowGradients } from './row-gradients.js';
import type { ShardUpdates, UpdateSettings } from './shard-updates.js';
import type { StepExecutor } from './step-executor.js';
import type { StepPlanner } from './step-planner.js';

/** What steps work with; the engine owns all of it. */
export interface StepParts {
  readonly layout: ParameterLayout;
  readonly planner: StepPlanner;
  readonly executor: StepExecutor;
  readonly shapes: ActivationShapes;
  readonly writer: GradientWriter;
  readonly rows: ReadonlyMap<string, RowGradients>;
  readonly updates: ShardUpdates;
  /** Name of the block that gives losses. */
  readonly lossBlock: string;
  readonly seed: number;
  /** 0: no clipping. */
  readonly maxGradNorm: number;
}

/** A step whose backward pass is over. */
export interface DoneStep {
  readonly loss: number;
  readonly gradNorm: number;
  /** Resolves when every weight is updated. */
  readonly updated: Promise<void>;
}

export class TrainingSteps {
  readonly #parts: StepParts;

  constructor(parts: StepParts) {
    this.#parts = parts;
  }

  /**
   * Runs forward and backward over the accumulated batch; the update may still run then.
   *
   * @param base settings of the update, the clip factor excepted
   * @param previous the update of the step before
   * @throws NON_FINITE naming the block; anything that moves or computes may throw
   */
  async run(
    batches: readonly MicroBatch[],
    base: UpdateSettings,
    previous: Promise<void>,
  ): Promise<DoneStep> {
    const { planner, executor, shapes, writer, rows, updates, layout, seed } = this.#parts;
    const weight = totalWeight(batches);
    const losses = new LossSum(this.#parts.lossBlock);
    const aux = batches.map(({ fields }, microBatch): BlockAux => ({
      fields,
      tensors: {},
      lossScale: 1 / weight,
      seed,
      step: base.step - 1,
      microBatch,
      block: 0,
    }));
    for (const sum of rows.values()) sum.reset();
    let settings = base;
    let gradNorm = NaN;
    const { maxGradNorm } = this.#parts;
    const groups = layout.groups.filter((group) => group.trainable);
    const { finished, updated } = executor.start(
      planner.planFor(batches),
      { step: base.step, aux, losses: () => losses, inputShape: shapes.of },
      {
        norm: () => {
          for (const group of groups.toReversed()) writer.checkFinite(group);
          gradNorm = gradientNorm(writer.allLeaves());
          if (maxGradNorm === 0) return;
          settings = { ...base, gradScale: clipCoefficient(gradNorm, maxGradNorm) };
        },
        update: async (shardId, groupIndex, onStart) => {
          const group = layout.groups[groupIndex];
          const shard = layout.shards[shardId];
          assert(group !== undefined && shard?.id === shardId, 'the plan knows its shards');
          writer.checkFinite(group);
          await updates.update(group, shard, settings, onStart);
        },
      },
    );
    await finished;
    updates.expect(settings);
    await previous;
    return { loss: losses.value / weight, gradNorm, updated: this.#conclude(updated, base) };
  }

  async #conclude(updated: Promise<void>, settings: UpdateSettings): Promise<void> {
    await updated;
    this.#parts.updates.conclude(settings);
  }
}

/** Number of loss terms in all. @throws DATA_EMPTY when there are none */
function totalWeight(batches: readonly MicroBatch[]): number {
  const weight = batches.reduce((sum, batch) => sum + batch.weight, 0);
  if (!(weight > 0)) {
    throw new SpillwayError(
      'DATA_EMPTY',
      'the accumulated batch has no loss terms; every label is masked',
    );
  }
  return weight;
}
