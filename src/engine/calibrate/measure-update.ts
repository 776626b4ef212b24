/**
 * @file Measures AdamW on the optimizer's workers, states in memory, all workers at once.
 */
import type { ComputeDtype } from '../../../core/types.js';
import type { MemoryArena, MemoryLease } from '../../../tiers/host/host-buffer.js';
import type { StateLocation } from '../../../tiers/state-location.js';
import { ADAMW_DEFAULTS, adamwScalars } from '../../optim/adamw-options.js';
import { OptimizerPool } from '../../optim/optimizer-pool.js';
import type { ShardUpdate } from '../../optim/shard-update.js';
import type { UpdateCosts } from './cost-store.js';
import { median } from './median.js';

/** Elements of one shard: 64 MiB of states, more than a processor's cache. */
const SHARD_LENGTH = 2 ** 22;

/** Rounds; the median counts, without the first. */
const ROUNDS = 9;

/**
 * Elements per second of all workers together. Takes 64 MiB of the arena per worker.
 *
 * @throws HOST_OUT_OF_MEMORY, WORKER_FAILED
 */
export async function measureUpdate(
  arena: MemoryArena,
  workers: number,
  dtype: ComputeDtype,
): Promise<UpdateCosts> {
  const leases: MemoryLease[] = [];
  const state = (elementBytes: number): StateLocation => {
    const lease = arena.lease(SHARD_LENGTH * elementBytes, 'update');
    leases.push(lease);
    lease.bytes.fill(0);
    return { kind: 'memory', tier: 'host', bytes: lease.bytes };
  };
  const job = (): ShardUpdate => ({
    length: SHARD_LENGTH,
    param: state(dtype === 'bfloat16' ? 2 : 4),
    ...(dtype === 'bfloat16' ? { masterLo: state(2) } : {}),
    grad: state(4),
    expAvg: state(4),
    expAvgSq: state(4),
    scalars: adamwScalars(ADAMW_DEFAULTS, { decay: true }, 1, 1e-4, 1),
  });
  let pool: OptimizerPool | undefined;
  try {
    const jobs = Array.from({ length: workers }, job);
    const staging = { dtype, nvmeStates: [], depth: 1 as const, maxShardLength: SHARD_LENGTH };
    const started = (pool = await OptimizerPool.create({ workers, arena, staging, io: 'auto' }));
    const seconds: number[] = [];
    for (let round = 0; round <= ROUNDS; round += 1) {
      const start = performance.now();
      await Promise.all(jobs.map((one) => started.update(one)));
      if (round > 0) seconds.push((performance.now() - start) / 1000);
    }
    return { updateElementsPerSecond: (workers * SHARD_LENGTH) / median(seconds) };
  } finally {
    await pool?.close();
    for (const lease of leases) lease.dispose();
  }
}
