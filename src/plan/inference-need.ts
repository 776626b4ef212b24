/**
 * @file Adds up, for given decisions, the most bytes that inference holds in each tier.
 *
 * Device: what is resident, the region, and the largest need of any block. Host: what is homed there,
 * staging buffers and one row of logits. NVMe: the layout. Upper bounds that the ledgers enforce.
 */
import { alignUp } from '../../core/bytes.js';
import { IO_ALIGNMENT, type ComputeDtype, type Tier } from '../../core/types.js';
import { MIN_STAGING, STAGING_BUFFER_BYTES } from '../../tiers/host/staging-pool.js';
import { layoutBytes, type LayoutRequest } from '../../tiers/nvme/layout.js';
import type { Block } from '../model/block.js';
import type { ForwardProfile } from './block-profile.js';
import { isReadAtHome, packParams } from './packed-params.js';
import type { ParameterLayout } from './parameter-layout.js';
import type { GroupHomes } from './placement.js';
import { layOutRegion } from './region-layout.js';
import type { RegionPlan } from './step-plan.js';
import { chargedBytes, tensorBytes } from './tensor-bytes.js';

/** Batches that are evaluated. */
export interface EvaluationNeed {
  readonly profiles: readonly ForwardProfile[];
  /** Bytes of the batch fields that blocks read on the device, of one micro-batch. */
  readonly fieldBytes: number;
}

/** A sequence that is continued. */
export interface SequenceNeed {
  readonly profiles: readonly ForwardProfile[];
  /** Positions of the longest sequence. */
  readonly limit: number;
  /** Host bytes of one row of logits. */
  readonly logitsBytes: number;
}

/** What is needed depends on this and on decisions. */
export interface InferenceNeedInput {
  readonly blocks: readonly Block[];
  readonly layout: ParameterLayout;
  readonly evaluation: EvaluationNeed | undefined;
  readonly sequence: SequenceNeed | undefined;
  readonly dtype: ComputeDtype;
  /** The device multiplies by bfloat16 matrices as they are. */
  readonly bf16Operands: boolean;
  /** Number of NVMe paths; 0 when there is none. */
  readonly nvmePathCount: number;
}

export interface InferenceDecisions {
  params: Tier[];
  caches: ('device' | 'host')[];
  stagingCount: number;
  /** Slots of the region, by kind; see RegionPlan. */
  paramSlots: number;
  activationSlots: number;
  tileSlots: number;
  /** Whether tiles of the head have memory of their own, so that they are fetched ahead of it. */
  tilesApart: boolean;
  /** Whether gathered rows have, so that the first parameters are fetched beside them. */
  rowsApart: boolean;
  /** Micro-batches that are evaluated in one pass over the weights. */
  evaluationBatches: number;
}

export class InferenceNeed {
  readonly #input: InferenceNeedInput;
  /** Elements per position that each block keeps, by cached tensor. */
  readonly cacheWidths: readonly (readonly number[])[];
  /** Leased bytes of each block's cache. */
  readonly #caches: readonly number[];

  constructor(input: InferenceNeedInput) {
    this.#input = input;
    const { blocks, sequence } = input;
    this.cacheWidths = blocks.map((_, index) => sequence?.profiles[index]?.cacheWidths ?? []);
    const limit = sequence?.limit ?? 0;
    this.#caches = this.cacheWidths.map((widths) =>
      widths.reduce((sum, width) => sum + alignUp(limit * width * 4, IO_ALIGNMENT), 0),
    );
  }

  get cacheBytes(): number {
    return this.#caches.reduce((sum, bytes) => sum + bytes, 0);
  }

  peaksOf(decisions: InferenceDecisions): Record<Tier, number> {
    const { stagingCount } = decisions;
    const logits = alignUp(this.#input.sequence?.logitsBytes ?? 0, IO_ALIGNMENT);
    // Weights pass through those of writes while they are loaded.
    const buffers = stagingCount + MIN_STAGING.write;
    const fixed = buffers * STAGING_BUFFER_BYTES + logits;
    const region = alignUp(this.regionOf(decisions).byteLength, IO_ALIGNMENT);
    return {
      device: this.#resident(decisions, 'device') + region + this.#transient(decisions),
      host: this.#resident(decisions, 'host') + fixed,
      nvme: layoutBytes(this.nvmeRequest(decisions)),
    };
  }

  nvmeRequest({ params }: InferenceDecisions): LayoutRequest {
    const { layout, dtype, nvmePathCount } = this.#input;
    const states = layout.groups
      .filter((group) => params[group.index] === 'nvme')
      .flatMap((group) =>
        group.shards.map(({ id, length }) => {
          return { shard: id, state: 'param', elementCount: length, elementType: dtype } as const;
        }),
      );
    return { states, scratch: [], fileCount: Math.max(1, nvmePathCount), slots: 1 };
  }

  /** The region that these decisions make. */
  regionOf(decisions: InferenceDecisions): RegionPlan {
    const { blocks, layout, dtype } = this.#input;
    const homes = homesOf(decisions);
    const packed = blocks.map((block) => packParams(block, { ...this.#input, homes }).byteLength);
    const head = blocks.at(-1);
    let headBytes = 0;
    let tileSlotBytes = 0;
    if (head?.kind === 'tiled') {
      headBytes = packed.at(-1)!;
      const matrix = layout.params.get(head.tiledParam)!;
      const rows = matrix.spec.shape[0]!;
      const tile = Math.min(rows, head.tileRows) * (matrix.length / rows);
      tileSlotBytes = isReadAtHome(matrix, { homes, dtype }) ? 0 : tensorBytes(tile);
    }
    const cacheBytes = this.#cacheSlotBytes(decisions);
    return layOutRegion({
      paramSlots: decisions.paramSlots,
      paramSlotBytes: maxOf(packed.filter((_, index) => blocks[index]!.kind === 'dense')),
      headBytes,
      tileSlots: tileSlotBytes === 0 ? 0 : decisions.tileSlots,
      tileSlotBytes,
      tilesApart: decisions.tilesApart,
      activationSlots: decisions.activationSlots,
      activationSlotBytes: Math.max(this.#rowBytes(), cacheBytes),
      // Rows alone are gone before the first parameters are needed.
      activationsApart: decisions.rowsApart || cacheBytes > 0,
    });
  }

  #rowBytes(): number {
    const { evaluation, sequence } = this.#input;
    return Math.max(evaluation?.profiles[0]?.rowBytes ?? 0, sequence?.profiles[0]?.rowBytes ?? 0);
  }

  /** What the largest cache that visits the device takes there. */
  #cacheSlotBytes({ caches }: InferenceDecisions): number {
    const limit = this.#input.sequence?.limit ?? 0;
    return maxOf(
      this.cacheWidths.map((widths, block) =>
        caches[block] === 'device'
          ? 0
          : widths.reduce((sum, width) => sum + tensorBytes(limit * width), 0),
      ),
    );
  }

  #resident({ params, caches }: InferenceDecisions, tier: Tier): number {
    const bytesPer = this.#input.dtype === 'float32' ? 4 : 2;
    const groups = this.#input.layout.groups.filter(({ index }) => params[index] === tier);
    const weights = groups.map(({ length }) => alignUp(length * bytesPer, IO_ALIGNMENT));
    const cached = this.#caches.filter((_, block) => caches[block] === tier);
    return [...weights, ...cached].reduce((sum, bytes) => sum + bytes, 0);
  }

  /** What is on the device besides region and residents, at most. */
  #transient({ evaluationBatches }: InferenceDecisions): number {
    const { evaluation, sequence } = this.#input;
    const of = (profiles: readonly ForwardProfile[], microBatches: number): number =>
      maxOf(
        profiles.map(
          ({ widenedBytes, workBytes, heldBytes }) =>
            widenedBytes + workBytes + (microBatches - 1) * heldBytes,
        ),
      );
    const generating = sequence === undefined ? 0 : of(sequence.profiles, 1);
    if (evaluation === undefined) return generating;
    const { profiles, fieldBytes } = evaluation;
    const losses = chargedBytes((profiles.at(-1)?.outputShape ?? []).reduce(times, 4));
    const perMicroBatch = losses + fieldBytes;
    return Math.max(
      generating,
      of(profiles, evaluationBatches) + evaluationBatches * perMicroBatch,
    );
  }
}

/** Homes by group; only `param` is used. */
export function homesOf({ params }: InferenceDecisions): GroupHomes[] {
  return params.map((param) => ({ param, grad: param, optimizer: param }));
}

function maxOf(values: readonly number[]): number {
  return values.reduce((most, value) => Math.max(most, value), 0);
}

function times(a: number, b: number): number {
  return a * b;
}
