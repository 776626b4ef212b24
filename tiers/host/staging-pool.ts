/**
 * @file A few fixed buffers through which bytes pass between NVMe and the tiers above.
 *
 * Owns `count` leases of one full float32 chunk each, taken from the host pool once. A caller asks
 * for all the buffers that it needs at once, so that two callers cannot each hold one and wait for
 * the other; requests are served in order.
 */
import { SpillwayError, assert } from '../../core/errors.js';
import { CHUNK_ELEMENTS } from '../../core/types.js';
import type { MemoryArena, MemoryLease } from './host-buffer.js';

/** Bytes of one staging buffer: a chunk of float32. */
export const STAGING_BUFFER_BYTES = CHUNK_ELEMENTS * 4;

/** Fewest buffers of a pool. Reads: one, beside those of writes. Writes: adding to what is on NVMe
 * takes the old chunk and the added one. */
export const MIN_STAGING = { read: 1, write: 2 } as const;

/** Buffers lent by the pool; `release` gives them back and is idempotent. */
export interface StagingLoan {
  readonly buffers: readonly Uint8Array<SharedArrayBuffer>[];
  release(): void;
}

interface Waiter {
  readonly count: number;
  readonly grant: (loan: StagingLoan) => void;
  readonly refuse: (error: Error) => void;
}

export class StagingPool {
  readonly count: number;
  readonly #leases: MemoryLease[];
  readonly #free: Uint8Array<SharedArrayBuffer>[];
  readonly #waiters: Waiter[] = [];
  #disposed = false;

  /** @throws HOST_OUT_OF_MEMORY when the arena has no room for `count` buffers */
  constructor(arena: MemoryArena, count: number) {
    assert(count >= 1, 'there are staging buffers', { count });
    this.count = count;
    this.#leases = [];
    try {
      for (let index = 0; index < count; index += 1) {
        this.#leases.push(arena.lease(STAGING_BUFFER_BYTES, 'staging'));
      }
    } catch (error) {
      for (const lease of this.#leases) lease.dispose();
      throw error;
    }
    this.#free = this.#leases.map((lease) => lease.bytes);
  }

  /** Buffers not lent at the moment. */
  get freeCount(): number {
    return this.#free.length;
  }

  /** Waits for `count` buffers. Rejects with ENGINE_CLOSED when the pool is disposed meanwhile. */
  async acquire(count: number): Promise<StagingLoan> {
    assert(count <= this.count, 'a caller asks for no more buffers than there are', { count });
    const loan = this.tryAcquire(count);
    if (loan !== undefined) return loan;
    return new Promise((grant, refuse) => this.#waiters.push({ count, grant, refuse }));
  }

  /** The buffers if they are free and nobody waits, else undefined. */
  tryAcquire(count: number): StagingLoan | undefined {
    if (this.#disposed) throw new SpillwayError('ENGINE_CLOSED', 'the staging pool is disposed');
    if (this.#waiters.length > 0 || this.#free.length < count) return undefined;
    return this.#lend(count);
  }

  /** Gives the memory back. Idempotent. Loans must have been released. */
  dispose(): void {
    if (this.#disposed) return;
    this.#disposed = true;
    for (const waiter of this.#waiters.splice(0)) {
      waiter.refuse(new SpillwayError('ENGINE_CLOSED', 'the staging pool is disposed'));
    }
    for (const lease of this.#leases) lease.dispose();
  }

  #lend(count: number): StagingLoan {
    const buffers = this.#free.splice(this.#free.length - count, count);
    let released = false;
    return {
      buffers,
      release: () => {
        if (released) return;
        released = true;
        this.#free.push(...buffers);
        this.#serve();
      },
    };
  }

  #serve(): void {
    while (this.#waiters.length > 0) {
      const waiter = this.#waiters[0];
      if (waiter === undefined || this.#free.length < waiter.count) return;
      this.#waiters.shift();
      waiter.grant(this.#lend(waiter.count));
    }
  }
}
