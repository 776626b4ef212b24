/** A worker module whose thread dies in the middle of the update of a shard of length 1. */
import { threadId } from 'node:worker_threads';

import type { UpdateTask, WorkerOutcome, WorkerReady } from '../../src/optim/worker-protocol.js';

export function start(): WorkerOutcome<WorkerReady> {
  return { kind: 'done', value: { threadId, io: 'none' } };
}

export async function update({ job }: UpdateTask): Promise<WorkerOutcome<object>> {
  if (job.length === 1) {
    setImmediate(() => {
      throw new Error('thread lost');
    });
    await new Promise(() => undefined);
  }
  // Outlives the crash of its neighbour.
  await new Promise((resolve) => setTimeout(resolve, 300));
  return { kind: 'done', value: {} };
}

export function stop(): WorkerOutcome<true> {
  return { kind: 'done', value: true };
}
