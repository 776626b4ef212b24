/**
 * @file What a run was planned to hold, and its steps to move, and what they moved.
 *
 * Counts the bytes of steps alone: loading, evaluations and checkpoints lie between `pause` and
 * `resume`. Both are called when no update is outstanding.
 */
import { LINKS, TIERS, type Link, type Tier } from '../../core/types.js';
import type { Engine } from '../engine/engine.js';
import type { MicroBatch } from '../model/block.js';
import { bytesPerLink, type StepPlan } from '../plan/step-plan.js';

type LinkBytes = Readonly<Record<Link, number>>;

/** What an engine knows of its steps. */
export type AccountedEngine = Pick<
  Engine,
  'bytesMoved' | 'stepPlan' | 'devicePeaks' | 'evaluationPeak' | 'plan'
>;

/** Predicted and measured, in bytes; per step they are means, rounded. */
export interface StepTotals {
  readonly moved: LinkBytes;
  readonly planned: {
    readonly bytes_per_step: LinkBytes;
    readonly peak_bytes: Readonly<Record<Tier, number>>;
  };
}

export class StepAccounts {
  readonly #engine: AccountedEngine;
  readonly #moved = zeroes();
  readonly #planned = zeroes();
  readonly #bytesOf = new WeakMap<StepPlan, LinkBytes>();
  readonly #steps = new LargestBatches();
  readonly #evaluations = new LargestBatches();
  #mark: LinkBytes | undefined;
  #stepCount = 0;

  constructor(engine: AccountedEngine) {
    this.#engine = engine;
  }

  /** What moves from now on belongs to steps. */
  resume(): void {
    this.#mark = this.#engine.bytesMoved;
  }

  /** What moves from now on does not. Does nothing while it is paused. */
  pause(): void {
    if (this.#mark === undefined) return;
    const now = this.#engine.bytesMoved;
    for (const link of LINKS) this.#moved[link] += now[link] - this.#mark[link];
    this.#mark = undefined;
  }

  /** A step over these batches is about to begin. */
  step(batches: readonly MicroBatch[]): void {
    this.#stepCount += 1;
    const plan = this.#engine.stepPlan(batches);
    const bytes = this.#bytesOf.get(plan) ?? bytesPerLink(plan);
    this.#bytesOf.set(plan, bytes);
    for (const link of LINKS) this.#planned[link] += bytes[link];
    this.#steps.note(batches);
  }

  /** These are about to be evaluated together. */
  evaluation(batches: readonly MicroBatch[]): void {
    this.#evaluations.note(batches);
  }

  /** Of all steps, while nothing is outstanding; undefined when there were none. */
  async totals(): Promise<StepTotals | undefined> {
    this.pause();
    const count = this.#stepCount;
    if (count === 0) return undefined;
    return {
      moved: perStep(this.#moved, count),
      planned: { bytes_per_step: perStep(this.#planned, count), peak_bytes: await this.#peaks() },
    };
  }

  /** Exact where the plan knows the device's allocations, else what the plan reserves. */
  async #peaks(): Promise<Record<Tier, number>> {
    const { plan } = this.#engine;
    const peaks = Object.fromEntries(TIERS.map((tier) => [tier, plan.peakBytes[tier]]));
    let device = 0;
    for (const batches of this.#steps) {
      const phases = await this.#engine.devicePeaks(batches);
      if (phases === undefined) return peaks as Record<Tier, number>;
      device = Math.max(device, ...Object.values(phases));
    }
    for (const batches of this.#evaluations) {
      device = Math.max(device, (await this.#engine.evaluationPeak(batches)) ?? 0);
    }
    return { ...peaks, device } as Record<Tier, number>;
  }
}

/** The longest batches of each number of rows: no others need more memory. */
class LargestBatches {
  readonly #largest = new Map<string, { readonly size: number; batches: readonly MicroBatch[] }>();

  note(batches: readonly MicroBatch[]): void {
    const sizes = batches.map(sizesOf);
    const key = sizes.map(({ rows }) => rows).join();
    const size = sizes.reduce((sum, { elements }) => sum + elements, 0);
    if (size > (this.#largest.get(key)?.size ?? 0)) this.#largest.set(key, { size, batches });
  }

  *[Symbol.iterator](): Generator<readonly MicroBatch[]> {
    for (const { batches } of this.#largest.values()) yield batches;
  }
}

/** Rows and elements of a micro-batch, all fields together. */
function sizesOf({ fields }: MicroBatch): { rows: number; elements: number } {
  const all = Object.values(fields);
  return {
    rows: all[0]?.shape[0] ?? 0,
    elements: all.reduce((sum, { data }) => sum + data.length, 0),
  };
}

function perStep(sums: LinkBytes, count: number): LinkBytes {
  const means = LINKS.map((link) => [link, Math.round(sums[link] / count)] as const);
  return Object.fromEntries(means) as Record<Link, number>;
}

function zeroes(): Record<Link, number> {
  return { upload: 0, download: 0, nvme_read: 0, nvme_write: 0 };
}
