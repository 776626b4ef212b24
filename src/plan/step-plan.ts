/**
 * @file A training step, an evaluation or the continuation of a sequence as data: operations, the
 * bytes they move, what they wait for.
 *
 * One plan, three uses: `simulate` predicts it, the executor runs it, the trace compares the two.
 * Operations are numbered in program order: running them one after the other is always right. The
 * executor starts each as soon as what it waits for is over; operations that share a link take
 * turns on it piece by piece, the lowest number first. Compute alone keeps program order strictly,
 * so that device memory is allocated and freed in an order that no timing changes.
 *
 * Device memory has two parts. What is fetched arrives in a **region** that is reserved once; the
 * plan says at which offset. What compute produces is allocated when its operation starts, and
 * freed when a later compute operation starts (`frees`) or has used it (`drops`).
 */
import { LINKS, type Lane, type Link } from '../../core/types.js';
import type { ParamName } from '../model/block.js';

/** Number of an operation within its step. */
export type OperationId = number;

/** Part of a step, for reports; peaks are kept apart by phase. */
export type Phase = 'forward' | 'backward' | 'update';

/** All phases, in order. */
export const PHASES = ['forward', 'backward', 'update'] as const satisfies readonly Phase[];

/**
 * What a compute operation leaves on the device: the output (or the gradient of its input), the
 * gradients of parameters, losses, what a sequence keeps of its tokens, a tile's logits. Each part is
 * freed on its own.
 */
export interface Output {
  readonly operation: OperationId;
  readonly part: 'activation' | 'gradients' | 'losses' | 'added' | 'logits';
}

/** Where a compute operation finds an activation, or the gradient of one. */
export type Source =
  | { readonly kind: 'output'; readonly operation: OperationId }
  /** Fetched to this offset of the region. */
  | { readonly kind: 'region'; readonly offset: number };

/** Fetches and spills. `block` of an activation is the block whose input it is. */
export type Transfer =
  | { readonly kind: 'fetch-params'; readonly block: number; readonly offset: number }
  /** The rows of all gathers of the first block, one after the other. */
  | {
      readonly kind: 'fetch-rows';
      readonly microBatch: number;
      readonly offset: number;
      /** Of tables on NVMe, only the chunks that hold one: what it moves depends on the tokens. */
      readonly isSparse?: boolean;
    }
  | { readonly kind: 'fetch-tile'; readonly tile: number; readonly offset: number }
  | {
      readonly kind: 'fetch-activation';
      readonly block: number;
      readonly microBatch: number;
      readonly offset: number;
    }
  | {
      readonly kind: 'spill-activation';
      readonly block: number;
      readonly microBatch: number;
      readonly operation: OperationId;
    }
  /** All gradients that `operation` left for `block`. */
  | {
      readonly kind: 'write-gradients';
      readonly block: number;
      readonly operation: OperationId;
      /** Whether they start the step's sums. */
      readonly first: boolean;
    }
  | {
      readonly kind: 'write-tile';
      readonly tile: number;
      readonly operation: OperationId;
      readonly first: boolean;
    }
  | {
      readonly kind: 'add-rows';
      readonly microBatch: number;
      readonly operation: OperationId;
    }
  /** The summed row gradients of a table, into its gradient. */
  | { readonly kind: 'write-rows'; readonly param: ParamName }
  /** Sums of lower uses of a tied parameter, into its gradient. */
  | { readonly kind: 'merge-uses'; readonly param: ParamName }
  | { readonly kind: 'losses'; readonly microBatch: number; readonly operation: OperationId }
  /** What a block keeps of the sequence's earlier tokens. */
  | { readonly kind: 'fetch-cache'; readonly block: number; readonly offset: number }
  | { readonly kind: 'write-cache'; readonly block: number; readonly operation: OperationId }
  | { readonly kind: 'write-logits'; readonly tile: number; readonly operation: OperationId };

/** What runs on the device. `offset` is where the block's fetched parameters lie in the region. */
export type Compute =
  | { readonly kind: 'rows'; readonly microBatch: number; readonly offset: number }
  | {
      readonly kind: 'forward';
      readonly block: number;
      readonly microBatch: number;
      readonly offset: number;
      /** Undefined in the first block. Without a reverse pass the last block runs too, and leaves
       * losses. */
      readonly input: Source | undefined;
    }
  | {
      readonly kind: 'reverse';
      readonly block: number;
      readonly microBatch: number;
      readonly offset: number;
      readonly input: Source | undefined;
      /** Undefined in the last block, whose losses seed it. */
      readonly dy: Source | undefined;
      /** The operation whose gradients these are added to. */
      readonly sums: OperationId | undefined;
    }
  | { readonly kind: 'reverse-rows'; readonly microBatch: number; readonly dy: Source }
  | {
      readonly kind: 'prepare';
      readonly microBatch: number;
      readonly offset: number;
      readonly input: Source;
    }
  | {
      readonly kind: 'forward-tile';
      readonly tile: number;
      readonly microBatches: readonly number[];
      /** Undefined where the tile is read at its home, the device. */
      readonly offset: number | undefined;
    }
  | {
      readonly kind: 'end';
      readonly microBatch: number;
      /** No reverse pass follows: nothing but the losses is kept. */
      readonly isLast?: boolean;
    }
  | {
      readonly kind: 'backward-tile';
      readonly tile: number;
      /** Their gradients of the tile are added up, in order. */
      readonly microBatches: readonly number[];
      readonly offset: number | undefined;
    }
  | {
      readonly kind: 'reverse-prepare';
      readonly microBatch: number;
      readonly offset: number;
      readonly input: Source;
      readonly sums: OperationId | undefined;
    }
  /** The sequence's next tokens through a dense block. */
  | {
      readonly kind: 'extend';
      readonly block: number;
      readonly microBatch: number;
      readonly offset: number;
      readonly input: Source | undefined;
      /** Where what is known of earlier tokens was fetched to; undefined where it is read at its
       * home, or there is none. */
      readonly cacheOffset: number | undefined;
    }
  /** The last of the sequence's tokens, for its logits. */
  | {
      readonly kind: 'prepare-last';
      readonly microBatch: number;
      readonly offset: number;
      readonly input: Source;
    }
  | {
      readonly kind: 'logits-tile';
      readonly tile: number;
      readonly microBatch: number;
      readonly offset: number | undefined;
    };

/** Work of the host: the gradient norm, and AdamW on one shard. */
export type Update =
  | { readonly kind: 'norm' }
  | {
      readonly kind: 'update';
      readonly shard: number;
      readonly group: number;
      readonly length: number;
    };

export type Action = Transfer | Compute | Update;

export interface Operation {
  readonly id: OperationId;
  /** Where reports show it: a transfer stands on the link that it shares with the device, or on
   * `nvme_write` where it has none. */
  readonly lane: Lane;
  readonly phase: Phase;
  readonly action: Action;
  /** Bytes that it moves on each link. Writes of chunks in part, and additions, read too. */
  readonly bytes: Readonly<Partial<Record<Link, number>>>;
  /** Operations that are over before it starts; ascending, all lower than `id`. */
  readonly after: readonly OperationId[];
  /** Spills that have read the device before it starts; their bytes may still be on their way. */
  readonly copied?: readonly OperationId[];
  /** Parameter groups whose update of the step before is over before it starts. */
  readonly fences?: readonly number[];
  /** Outputs that are freed as it starts: a transfer had to be over first. */
  readonly frees?: readonly Output[];
  /** Outputs that are freed once its kernels are launched: it used them last. */
  readonly drops?: readonly Output[];
}

export interface StepPlan {
  readonly operations: readonly Operation[];
  /** Whole-parameter fetches, for the count of loads. */
  readonly paramLoadCount: number;
  /** Compute operations that may be launched and not have run. Default `LAUNCH_AHEAD`. */
  readonly launchAhead?: number;
}

/** So many that the device's queue never runs dry, where operations are not short. */
export const LAUNCH_AHEAD = 2;

/** Sums the bytes of a plan per link. */
export function bytesPerLink(
  plan: StepPlan,
  wanted: (operation: Operation) => boolean = () => true,
): Record<Link, number> {
  const sums: Record<Link, number> = { upload: 0, download: 0, nvme_read: 0, nvme_write: 0 };
  for (const operation of plan.operations) {
    if (!wanted(operation)) continue;
    for (const link of LINKS) sums[link] += operation.bytes[link] ?? 0;
  }
  return sums;
}

/** The same by phase. */
export function bytesPerPhase({ operations }: StepPlan): Record<Phase, Record<Link, number>> {
  const none = (): Record<Link, number> => ({
    upload: 0,
    download: 0,
    nvme_read: 0,
    nvme_write: 0,
  });
  const sums = { forward: none(), backward: none(), update: none() };
  for (const { phase, bytes } of operations) {
    for (const link of LINKS) sums[phase][link] += bytes[link] ?? 0;
  }
  return sums;
}

/** Where the device's region puts what is fetched; decided by the memory plan. */
export interface RegionPlan {
  /** Slots for whole parameters of one block, from offset 0 on. */
  readonly paramSlots: number;
  readonly paramSlotBytes: number;
  /** Slots for gathered rows, activations and their gradients. */
  readonly activationSlots: number;
  readonly activationSlotBytes: number;
  readonly activationOffset: number;
  /** Slots for tiles of the head's matrix; they may lie over the parameters' slots. */
  readonly tileSlots: number;
  readonly tileSlotBytes: number;
  readonly tileOffset: number;
  /** The tiled block's other parameters. */
  readonly headOffset: number;
  readonly byteLength: number;
}
