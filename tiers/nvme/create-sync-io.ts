/** @file Picks the blocking I/O of a worker thread: its own ring where that works. */
import { native } from '../native/binding.js';
import type { FaultPlan } from './fault-plan.js';
import type { SyncIo } from './io-backend.js';
import { SyncBlocking } from './sync-blocking.js';
import { SyncRing } from './sync-ring.js';

/** How a worker does its I/O. */
export interface SyncIoOptions {
  /** Most requests in flight, 1 to 1024. */
  readonly depth: number;
  /** Default `auto`: the ring where addon and kernel offer it, else node:fs (see `kind`). */
  readonly prefer?: 'ring' | 'blocking' | 'auto';
  readonly faults?: FaultPlan;
}

/**
 * Opens the I/O of the calling thread.
 *
 * @throws DEVICE_UNAVAILABLE when `prefer` is `ring` and there is none
 */
export function createSyncIo({ depth, prefer = 'auto', faults }: SyncIoOptions): SyncIo {
  const useRing = prefer === 'ring' || (prefer === 'auto' && native()?.ringProbe() === 0);
  return useRing ? new SyncRing(depth, faults) : new SyncBlocking(depth, faults);
}
