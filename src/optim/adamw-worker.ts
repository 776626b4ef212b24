/**
 * @file The module that each thread of the optimizer pool runs. Owns the thread's `SyncIo`.
 *
 * piscina calls the exports by name, one at a time. Each blocks its thread until it is done.
 */
import { threadId, workerData } from 'node:worker_threads';

import { kernels } from '../../tiers/native/binding.js';
import { createSyncIo } from '../../tiers/nvme/create-sync-io.js';
import type { SyncIo } from '../../tiers/nvme/io-backend.js';
import type { ShardUpdateResult } from './shard-update.js';
import { updateShard } from './update-shard.js';
import { toWireError } from './wire-error.js';
import type { UpdateTask, WorkerOutcome, WorkerReady, WorkerSetup } from './worker-protocol.js';

/**
 * Requests in flight per worker. The disk's plateau is at 4 to 8 of 1 MiB; five states, two of them
 * with halves of that, ask for the reads of one tile and the writes of another, nine, and a start
 * that finds no room blocks the thread that should compute.
 */
const SYNC_IO_DEPTH = 16;

const setup = workerData as WorkerSetup;
let io: SyncIo | null = null;

/** Opens the thread's I/O. */
export function start(): WorkerOutcome<WorkerReady> {
  return outcomeOf(() => {
    if (setup.usesNvme) {
      io ??= createSyncIo({
        depth: SYNC_IO_DEPTH,
        prefer: setup.io,
        ...(setup.faults !== undefined && { faults: setup.faults }),
      });
    }
    return { threadId, io: io?.kind ?? 'none' };
  });
}

/** Runs one update. */
export function update(task: UpdateTask): WorkerOutcome<ShardUpdateResult> {
  const { job, staging, cancel, slotIndex } = task;
  return outcomeOf(() =>
    updateShard(job, {
      kernels: kernels(),
      io,
      staging,
      depth: setup.depth,
      isCancelled: () => Atomics.load(cancel, slotIndex) !== 0,
    }),
  );
}

/** Closes the thread's I/O. */
export function stop(): WorkerOutcome<true> {
  return outcomeOf(() => {
    io?.dispose();
    io = null;
    return true;
  });
}

function outcomeOf<T>(action: () => T | null): WorkerOutcome<T> {
  try {
    const value = action();
    return value === null ? { kind: 'cancelled' } : { kind: 'done', value };
  } catch (error) {
    return { kind: 'failed', error: toWireError(error) };
  }
}
