/**
 * @file A chain of equal blocks on a paced device with throttled links: what a step takes shows how
 * well transfers and updates hide behind compute, which itself takes next to nothing.
 */
import * as tf from '@tensorflow/tfjs-core';
import { isCoded } from '../../core/errors.js';
import type { Link } from '../../core/types.js';
import { Engine } from '../../src/engine/engine.js';
import type { EngineOptions } from '../../src/engine/engine-options.js';
import type { Throttles } from '../../src/engine/link-turns.js';
import { planTraining } from '../../src/engine/plan-training.js';
import type { MicroBatch, Model } from '../../src/model/block.js';
import { defineBlock } from '../../src/model/define-block.js';
import { defineModel } from '../../src/model/define-model.js';
import type { MemoryPlan } from '../../src/plan/placement.js';
import type { StepPlan } from '../../src/plan/step-plan.js';

/** Sizes of a chain. */
export interface ChainShape {
  readonly blocks: number;
  readonly rows: number;
  readonly width: number;
  /** `matrix`: [width, width] per block; `scale`: [width], so that activations are what moves. */
  readonly params: 'matrix' | 'scale';
  /** Whether only the last block's parameters are trained. Default: all are. */
  readonly onlyLast?: boolean;
}

/** Blocks that multiply their input; the first one's is the field `x`, the last one gives losses. */
export function chainModel({ blocks, width, params, onlyLast = false }: ChainShape): Model {
  const multiply = (x: tf.Tensor, w: tf.Tensor): tf.Tensor =>
    params === 'matrix' ? tf.matMul(x, w) : tf.mul(x, w);
  const shape = params === 'matrix' ? [width, width] : [width];
  const init = { kind: 'normal', std: params === 'matrix' ? width ** -0.5 : 1 } as const;
  const chain = Array.from({ length: blocks }, (_, index) => {
    const name = `w${index}`;
    const isLast = index === blocks - 1;
    return defineBlock({
      name: `block ${index}`,
      kindKey: index === 0 ? 'first' : isLast ? 'last' : 'middle',
      params: { [name]: { shape, init, trainable: isLast || !onlyLast } },
      reads: index === 0 ? ['x'] : [],
      apply: (own, input, aux) => {
        const y = multiply(index === 0 ? aux.tensors['x']! : input!, own[name]!);
        return isLast ? tf.mean(tf.square(y), 1) : y;
      },
    });
  });
  return defineModel({ name: 'chain', blocks: chain, seed: 7 });
}

export function chainBatch({ rows, width }: ChainShape): MicroBatch {
  const data = Float32Array.from({ length: rows * width }, (_, i) => Math.sin(i * 0.37));
  return { fields: { x: { data, shape: [rows, width] } }, weight: rows };
}

/** All options but those that the shape decides. */
export type EngineShape = Omit<EngineOptions, 'model' | 'exampleBatch'>;

/** The smallest device budget whose plan is as `wanted`. */
export function deviceMemoryFor(
  shape: ChainShape,
  options: EngineShape,
  wanted: (plan: MemoryPlan) => boolean,
): Promise<number> {
  return leastBudget((deviceMemory) => planChain(shape, { ...options, deviceMemory }), wanted);
}

/** The smallest device budget that works. */
export async function leastDeviceMemory(shape: ChainShape, options: EngineShape): Promise<number> {
  return (await planChain(shape, { ...options, deviceMemory: 2 ** 28 })).minimumBytes.device;
}

/** The smallest host budget whose plan is as `wanted`. */
export function hostMemoryFor(
  shape: ChainShape,
  options: EngineShape,
  wanted: (plan: MemoryPlan) => boolean,
): Promise<number> {
  return leastBudget((hostMemory) => planChain(shape, { ...options, hostMemory }), wanted);
}

const BUDGET_UNIT = 2 ** 18;

async function leastBudget(
  planWith: (budget: number) => Promise<MemoryPlan>,
  wanted: (plan: MemoryPlan) => boolean,
): Promise<number> {
  for (let budget = BUDGET_UNIT; budget < 2 ** 28; budget += BUDGET_UNIT) {
    try {
      if (wanted(await planWith(budget))) return budget;
    } catch (error) {
      if (!isCoded(error) || error.code !== 'BUDGET_TOO_SMALL') throw error;
    }
  }
  throw new Error('no budget makes such a plan');
}

async function planChain(shape: ChainShape, options: EngineShape): Promise<MemoryPlan> {
  const chain = { model: chainModel(shape), exampleBatch: chainBatch(shape) };
  return (await planTraining({ ...options, ...chain })).plan;
}

/** Most steps that are measured: each may be disturbed by what else the machine does. */
const MOST_STEPS = 8;

/** An engine over a chain whose pace and throttles can be set between steps. */
export class PacedChain {
  readonly engine: Engine;
  readonly batches: readonly MicroBatch[];
  readonly #pacing: Pacing;

  private constructor(engine: Engine, batches: readonly MicroBatch[], pacing: Pacing) {
    this.engine = engine;
    this.batches = batches;
    this.#pacing = pacing;
  }

  static async create(shape: ChainShape, options: EngineShape): Promise<PacedChain> {
    const batch = chainBatch(shape);
    const pacing: Pacing = { throttles: { ...UNTHROTTLED }, computeMs: 0, updateMs: 0 };
    const engine = await Engine.create({
      ...options,
      model: chainModel(shape),
      exampleBatch: batch,
      execution: {
        throttles: pacing.throttles,
        pace: ({ lane, action }) =>
          (lane === 'compute' ? pacing.computeMs : action.kind === 'update' ? pacing.updateMs : 0) /
          1000,
      },
    });
    const count = options.gradientAccumulationSteps ?? 1;
    return new PacedChain(
      engine,
      Array.from({ length: count }, () => batch),
      pacing,
    );
  }

  /** The operations of its steps. */
  get plan(): StepPlan {
    return this.engine.stepPlan(this.batches);
  }

  get computeCount(): number {
    return this.plan.operations.filter(({ lane }) => lane === 'compute').length;
  }

  /** Sets what operations take, and what links carry. */
  set({
    computeMs = 0,
    updateMs = 0,
    throttles = {},
  }: Partial<Omit<Pacing, 'throttles'>> & { readonly throttles?: Throttles }): void {
    Object.assign(this.#pacing.throttles, UNTHROTTLED, throttles);
    Object.assign(this.#pacing, { computeMs, updateMs });
  }

  /**
   * Milliseconds from one step's result to the next one's, once one has passed: the least of
   * several, or the first that is at most `enoughMs`.
   */
  async steadyStepMs({ enoughMs = 0, mostSteps = MOST_STEPS } = {}): Promise<number> {
    await this.engine.step(this.batches);
    let least = Infinity;
    for (let step = 1; step < mostSteps && least > enoughMs; step += 1) {
      const start = performance.now();
      await this.engine.step(this.batches);
      least = Math.min(least, performance.now() - start);
    }
    await this.engine.drain();
    return least;
  }
}

const UNTHROTTLED: Readonly<Record<Link, number>> = {
  upload: Infinity,
  download: Infinity,
  nvme_read: Infinity,
  nvme_write: Infinity,
};

interface Pacing {
  readonly throttles: Record<Link, number>;
  /** Of each operation. */
  computeMs: number;
  updateMs: number;
}
