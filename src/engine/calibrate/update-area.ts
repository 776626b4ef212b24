/**
 * @file A shard for each of the optimizer's workers, states in memory, to be updated over and over.
 *
 * Each shard is touched chunk by chunk before it counts: where memory is slow the first time, it is
 * shorter. Owns the memory and the threads.
 */
import {
  CHUNK_ELEMENTS,
  elementBytes,
  type ComputeDtype,
  type StateName,
} from '../../../core/types.js';
import type { MemoryLease } from '../../../tiers/host/host-buffer.js';
import type { HostPool } from '../../../tiers/host/host-pool.js';
import { OptimizerPool } from '../../optim/optimizer-pool.js';
import { stateType } from '../../plan/placement.js';
import type { Deadline } from './deadline.js';
import { jobOf, statesOf } from './update-job.js';

/** Chunks of one shard at least, and at most: 256 MiB of states, as much as the largest cache that we
 * met. */
const CHUNKS = { least: 4, most: 64 };

/** The optimizer's workers. */
export interface UpdateWorkers {
  readonly workers: number;
  readonly dtype: ComputeDtype;
}

type ShardLeases = ReadonlyMap<StateName, MemoryLease>;

export class UpdateArea {
  readonly workers: number;
  readonly #dtype: ComputeDtype;
  readonly #pool: OptimizerPool;
  /** By worker. */
  readonly #shards: readonly ShardLeases[];
  /** Elements of each shard. */
  readonly #shardLength: number;

  private constructor(
    { workers, dtype }: UpdateWorkers,
    pool: OptimizerPool,
    shards: readonly ShardLeases[],
    shardLength: number,
  ) {
    this.workers = workers;
    this.#dtype = dtype;
    this.#pool = pool;
    this.#shards = shards;
    this.#shardLength = shardLength;
  }

  /** Takes 256 MiB of the arena per worker at most. @throws HOST_OUT_OF_MEMORY, WORKER_FAILED */
  static async create(
    request: UpdateWorkers,
    arena: HostPool,
    until: Deadline,
  ): Promise<UpdateArea> {
    const { workers, dtype } = request;
    const leases: MemoryLease[] = [];
    try {
      const shards = Array.from({ length: workers }, () => {
        const entries = statesOf(dtype).map((state) => {
          const bytes = CHUNKS.most * CHUNK_ELEMENTS * elementBytes(stateType(state, dtype));
          const lease = arena.lease(bytes, 'update');
          leases.push(lease);
          return [state, lease] as const;
        });
        return new Map(entries);
      });
      let chunks = 0;
      for (; chunks < CHUNKS.most && !(chunks >= CHUNKS.least && until.isOver); chunks += 1) {
        for (const { bytes } of leases) {
          const chunkBytes = bytes.byteLength / CHUNKS.most;
          bytes.fill(0, chunks * chunkBytes, (chunks + 1) * chunkBytes);
        }
      }
      const staging = { dtype, nvmeStates: [], depth: 1 as const };
      const pool = await OptimizerPool.create({ workers, arena, staging, io: 'auto' });
      return new UpdateArea(request, pool, shards, chunks * CHUNK_ELEMENTS);
    } catch (error) {
      for (const lease of leases) lease.dispose();
      throw error;
    }
  }

  /** Elements that all workers update as one. */
  get length(): number {
    return this.workers * this.#shardLength;
  }

  /** Updates so many elements, an equal share by each worker. @throws WORKER_FAILED */
  async update(elements: number): Promise<void> {
    const dtype = this.#dtype;
    const length = Math.min(this.#shardLength, Math.ceil(elements / this.workers));
    const jobs = this.#shards.map((states) =>
      jobOf(dtype, length, (state) => {
        const { bytes } = states.get(state)!;
        const part = bytes.subarray(0, length * elementBytes(stateType(state, dtype)));
        return { kind: 'memory', tier: 'host', bytes: part };
      }),
    );
    await Promise.all(jobs.map((job) => this.#pool.update(job)));
  }

  async dispose(): Promise<void> {
    await this.#pool.close();
    for (const states of this.#shards) for (const lease of states.values()) lease.dispose();
  }
}
