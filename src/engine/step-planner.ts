/**
 * @file The plan of a step over given micro-batches: built once per set of shapes.
 *
 * Owns nothing but the plans that it keeps.
 */
import type { ComputeDtype, Link } from '../../core/types.js';
import type { Block, MicroBatch } from '../model/block.js';
import type { BlockProfile } from '../plan/block-profile.js';
import { buildStep, stepBytes } from '../plan/build-step.js';
import type { MicroBatchShape, StepInput } from '../plan/step-input.js';
import type { ParameterLayout } from '../plan/parameter-layout.js';
import type { MemoryPlan } from '../plan/placement.js';
import type { StepPlan } from '../plan/step-plan.js';

/** Plans that are kept; a run pads its batches to few lengths. */
const KEPT_PLANS = 64;

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
  readonly #plans = new Map<string, StepPlan>();
  readonly #shapes = new Map<string, MicroBatchShape>();

  constructor(parts: StepPlannerParts) {
    this.#parts = parts;
  }

  /** The plan of a step over micro-batches of these shapes. */
  planFor(batches: readonly MicroBatch[]): StepPlan {
    const key = batches.map(shapeKey).join(' ');
    const known = this.#plans.get(key);
    if (known !== undefined) return known;
    const built = buildStep(this.#inputOf(batches));
    keep(this.#plans, key, built);
    return built;
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
      microBatches: batches.map((batch) => this.#shapeOf(batch)),
    };
  }

  #shapeOf(batch: MicroBatch): MicroBatchShape {
    const key = shapeKey(batch);
    const known = this.#shapes.get(key);
    if (known !== undefined) return known;
    const { blocks, profilesOf } = this.#parts;
    const profiles = profilesOf(batch);
    const [first] = blocks;
    const last = profiles.at(-1);
    const shape: MicroBatchShape = {
      activationLengths: blocks.map((_, index) => (profiles[index - 1]?.outputBytes ?? 0) / 4),
      gatherRows:
        first?.kind === 'row'
          ? first.gathers.map((gather) => gather.indices(batch.fields).length)
          : [],
      lossLength: (last?.tiled?.lossBytes ?? last?.outputBytes ?? 0) / 4,
      fieldBytes: Object.fromEntries(
        Object.entries(batch.fields).map(([name, { data }]) => [name, data.byteLength]),
      ),
    };
    keep(this.#shapes, key, shape);
    return shape;
  }
}

/** Micro-batches with equal keys have fields of equal shapes. */
export function shapeKey({ fields }: MicroBatch): string {
  return Object.entries(fields)
    .map(([name, { shape }]) => `${name}[${shape.join()}]`)
    .sort()
    .join();
}

function keep<T>(map: Map<string, T>, key: string, value: T): void {
  const oldest = map.keys().next().value;
  if (map.size >= KEPT_PLANS && oldest !== undefined) map.delete(oldest);
  map.set(key, value);
}
