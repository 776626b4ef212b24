/**
 * @file The host tier: leases of shared, page-aligned memory under a hard budget.
 *
 * The budget counts leases, each rounded up to 4096 bytes, and nothing else. Memory comes from
 * slabs of lazily touched address space; when none has a long enough free range, another slab is
 * reserved, so fragmentation does not refuse what the budget allows (address space itself is
 * bounded at `ADDRESS_SPACE_FACTOR` budgets). Content of a new lease is undefined.
 *
 * Owns the slabs. A lease keeps its slab's memory alive even after `dispose`.
 */
import { alignUp, formatBytes } from '../../core/bytes.js';
import { SpillwayError, assert } from '../../core/errors.js';
import { IO_ALIGNMENT } from '../../core/types.js';
import type { MemoryArena, MemoryLease } from './host-buffer.js';
import { RangeAllocator } from './range-allocator.js';
import { HUGE_PAGE_BYTES, createSlab, discardPages, type Slab } from './slab.js';

/** Largest ordinary slab; a longer lease gets a slab of its own size. */
const MAX_SLAB_BYTES = 2 ** 31;
/** Reserved address space is at most this many budgets, plus one slab. */
const ADDRESS_SPACE_FACTOR = 8;
/** Freed ranges from this length on give their pages back; shorter ones are soon used again. */
const DISCARD_BYTES = 2 ** 23;

interface PoolSlab {
  readonly slab: Slab;
  readonly ranges: RangeAllocator;
}

/** How a pool is created. */
export interface HostPoolOptions {
  /** Most bytes leased at a time. */
  readonly budgetBytes: number;
  /** Named in errors; default `host`. */
  readonly label?: string;
}

export class HostPool implements MemoryArena {
  readonly budgetBytes: number;
  readonly label: string;
  #slabs: PoolSlab[] = [];
  #reservedBytes = 0;
  #liveBytes = 0;
  #peakBytes = 0;
  #disposed = false;

  private constructor(budgetBytes: number, label: string) {
    this.budgetBytes = budgetBytes;
    this.label = label;
  }

  /** Creates an empty pool; no memory is touched. */
  static create({ budgetBytes, label = 'host' }: HostPoolOptions): HostPool {
    assert(Number.isSafeInteger(budgetBytes) && budgetBytes >= 0, 'a budget is a byte count', {
      budgetBytes,
    });
    return new HostPool(budgetBytes, label);
  }

  /** Bytes leased now, rounded up to 4096 each. */
  get liveBytes(): number {
    return this.#liveBytes;
  }

  /** Highest `liveBytes` so far. */
  get peakBytes(): number {
    return this.#peakBytes;
  }

  /** Address space of all slabs, touched or not. */
  get reservedBytes(): number {
    return this.#reservedBytes;
  }

  /**
   * Leases `byteLength` > 0 bytes.
   *
   * @throws HOST_OUT_OF_MEMORY with neededBytes, freeBytes, budgetBytes, largestFreeBytes; nothing
   *   changes then
   */
  lease(byteLength: number, label: string): MemoryLease {
    if (this.#disposed) throw new SpillwayError('ENGINE_CLOSED', 'the host pool is disposed');
    assert(Number.isSafeInteger(byteLength) && byteLength > 0, 'a lease holds bytes', {
      byteLength,
      label,
    });
    const rounded = alignUp(byteLength, IO_ALIGNMENT);
    if (this.#liveBytes + rounded > this.budgetBytes) throw this.#outOfMemory(rounded, label);
    const { owner, offset } = this.#allocate(rounded) ?? this.#grow(rounded, label);
    this.#liveBytes += rounded;
    this.#peakBytes = Math.max(this.#peakBytes, this.#liveBytes);
    const { bytes: slab } = owner.slab;
    const bytes = new Uint8Array(slab.buffer, slab.byteOffset + offset, byteLength);
    let live = true;
    return {
      bytes,
      label,
      dispose: () => {
        if (!live) return;
        live = false;
        this.#release(owner, offset, rounded);
      },
    };
  }

  /** Lets the slabs go; live leases keep theirs. Idempotent. */
  dispose(): void {
    this.#disposed = true;
    this.#slabs = [];
    this.#reservedBytes = 0;
  }

  #allocate(length: number): { owner: PoolSlab; offset: number } | undefined {
    for (const owner of this.#slabs) {
      const offset = owner.ranges.allocate(length);
      if (offset !== undefined) return { owner, offset };
    }
    return undefined;
  }

  #grow(length: number, label: string): { owner: PoolSlab; offset: number } {
    const usual = Math.min(MAX_SLAB_BYTES, alignUp(this.budgetBytes, HUGE_PAGE_BYTES));
    const slabBytes = Math.max(usual, alignUp(length, HUGE_PAGE_BYTES));
    const limit = ADDRESS_SPACE_FACTOR * this.budgetBytes + MAX_SLAB_BYTES;
    if (this.#reservedBytes + slabBytes > limit) throw this.#outOfMemory(length, label);
    let slab: Slab;
    try {
      slab = createSlab(slabBytes);
    } catch (error) {
      if (!(error instanceof RangeError)) throw error;
      throw this.#outOfMemory(length, label, error);
    }
    const owner = { slab, ranges: new RangeAllocator(slabBytes, IO_ALIGNMENT) };
    this.#slabs.push(owner);
    this.#reservedBytes += slabBytes;
    const offset = owner.ranges.allocate(length);
    assert(offset !== undefined, 'a fresh slab has room for what it was made for');
    return { owner, offset };
  }

  #release(owner: PoolSlab, offset: number, length: number): void {
    owner.ranges.release(offset);
    this.#liveBytes -= length;
    if (this.#disposed) return;
    const empty = owner.ranges.liveBytes === 0;
    if (empty && this.#slabs.length > 1) {
      this.#slabs = this.#slabs.filter((slab) => slab !== owner);
      this.#reservedBytes -= owner.ranges.capacity;
    } else if (length >= DISCARD_BYTES) {
      discardPages(owner.slab.bytes.subarray(offset, offset + length));
    }
  }

  #outOfMemory(neededBytes: number, label: string, cause?: unknown): SpillwayError {
    const freeBytes = this.budgetBytes - this.#liveBytes;
    const overBudget = neededBytes > freeBytes;
    const longestRange = Math.max(0, ...this.#slabs.map(({ ranges }) => ranges.largestFreeBytes));
    const facts = {
      pool: this.label,
      label,
      neededBytes,
      freeBytes,
      budgetBytes: this.budgetBytes,
      // Short of budget a new slab would serve anything that is left; short of address space not.
      largestFreeBytes: overBudget ? freeBytes : Math.min(freeBytes, longestRange),
    };
    const left = `${formatBytes(freeBytes)} left of ${formatBytes(this.budgetBytes)}`;
    const message = overBudget
      ? `host tier has ${left}; raise host_memory`
      : `host tier has ${left} but no address space for a slab; raise the process limits`;
    return new SpillwayError('HOST_OUT_OF_MEMORY', message, facts, cause);
  }
}
