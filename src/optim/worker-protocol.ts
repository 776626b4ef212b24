/**
 * @file What the optimizer pool and its workers tell each other: plain data that structured clone
 * carries. Views over SharedArrayBuffers cross by reference.
 */
import type { FaultPlan } from '../../tiers/nvme/fault-plan.js';
import type { ShardUpdate } from './shard-update.js';
import type { WireError } from './wire-error.js';

/** Given to each thread when it starts. */
export interface WorkerSetup {
  readonly io: 'ring' | 'blocking' | 'auto';
  /** Whether any state may be on NVMe; without, a worker opens no ring. */
  readonly usesNvme: boolean;
  /** Tile sets per shard. */
  readonly depth: number;
  readonly faults?: FaultPlan;
}

/** One update, with the slot that lends its staging memory. */
export interface UpdateTask {
  readonly job: ShardUpdate;
  readonly staging: Uint8Array<SharedArrayBuffer>;
  /** One word per slot; not 0 asks the slot's update to stop after its tile. */
  readonly cancel: Int32Array<SharedArrayBuffer>;
  readonly slotIndex: number;
}

/** How a worker's task ended. Errors travel as values: a thrown one would lose its code. */
export type WorkerOutcome<T> =
  | { readonly kind: 'done'; readonly value: T }
  | { readonly kind: 'cancelled' }
  | { readonly kind: 'failed'; readonly error: WireError };

/** What a worker answers when it is ready. */
export interface WorkerReady {
  readonly threadId: number;
  /** `none` when no state may be on NVMe. */
  readonly io: 'ring' | 'blocking' | 'none';
}
