/**
 * @file The native device's memory for tensors: address ranges, the ledger and the events that
 * order their reuse.
 *
 * Allocation and release happen when work is submitted, long before it runs. A range that a queue
 * has used may be used again by the same queue at once, since it works in order; another queue is
 * first told to wait for the event behind which the range was released. So the ledger, and where
 * every tensor lies, depend on the calls alone.
 *
 * The budget is the ledger's. Address space is wider: within the first `budgetBytes` tensors are
 * placed first; what finds no range there, because free bytes lie scattered or because a
 * measurement runs without the budget, goes to the overflow behind, whose pages are given back as
 * soon as they are free. So live bytes never exceed the budget, scattered free bytes never refuse
 * what fits, and touched pages exceed the budget only while something lies in the overflow.
 */
import { alignDown, alignUp } from '../../../core/bytes.js';
import { assert, SpillwayError } from '../../../core/errors.js';
import { HUGE_PAGE_BYTES } from '../../host/slab.js';
import { ByteLedger } from '../byte-ledger.js';
import {
  COMPUTE,
  CommandQueues,
  DOWNLOAD,
  QUEUES,
  UPLOAD,
  type DeviceQueues,
  type QueueId,
} from './command-queues.js';
import { TaggedRangeAllocator, type ReleaseTags } from './tagged-range-allocator.js';

/** Every tensor starts at a multiple of it and is charged in multiples of it: a cache line. */
export const TENSOR_ALIGNMENT = 64;

/** Overflow sizes to ask for; address space is free, but a system may limit it. */
const OVERFLOW_BYTES = [2 ** 36, 2 ** 32, 0];

/** Memory that one or more tensors refer to. */
export interface TensorStorage {
  /** Of its first byte. */
  readonly address: number;
  /** What the ledger was charged; undefined when the memory is someone else's (an alias). */
  readonly chargedBytes: number | undefined;
  /** Data entries over it. */
  holders: number;
  /** Whether a kernel may read or write it. */
  isComputed: boolean;
  /** The compute command with which it is complete, once somebody has said so; kernels only read
   * it from then on. */
  completeSequence: number | undefined;
  /** Last commands of the transfer queues that use it; 0 for none. */
  uploadSequence: number;
  downloadSequence: number;
}

export class TensorArena {
  readonly ledger: ByteLedger;
  readonly #queues: DeviceQueues;
  readonly #mainBytes: number;
  readonly #main: TaggedRangeAllocator;
  readonly #overflow: TaggedRangeAllocator;

  private constructor(queues: DeviceQueues, budgetBytes: number, overflowBytes: number) {
    this.#queues = queues;
    this.#mainBytes = mainSize(budgetBytes);
    this.#main = new TaggedRangeAllocator(this.#mainBytes, TENSOR_ALIGNMENT, QUEUES.length);
    this.#overflow = new TaggedRangeAllocator(overflowBytes, TENSOR_ALIGNMENT, QUEUES.length);
    this.ledger = new ByteLedger(budgetBytes, () =>
      Math.max(this.#main.largestFreeBytes, this.#overflow.largestFreeBytes),
    );
  }

  /**
   * Reserves address space and starts the queues, which the caller closes.
   *
   * @throws DEVICE_UNAVAILABLE without the addon; DEVICE_OUT_OF_MEMORY when the system refuses the
   *   address space
   */
  static create(budgetBytes: number, threads: number): TensorArena {
    let cause: unknown;
    for (const overflowBytes of OVERFLOW_BYTES) {
      try {
        const queues = CommandQueues.create(mainSize(budgetBytes) + overflowBytes, threads);
        return new TensorArena(queues, budgetBytes, overflowBytes);
      } catch (error) {
        if (!(error instanceof RangeError)) throw error;
        cause = error;
      }
    }
    throw new SpillwayError(
      'DEVICE_OUT_OF_MEMORY',
      'the system refuses address space for the device; lower device_memory',
      { neededBytes: budgetBytes },
      cause,
    );
  }

  /** Addresses without memory: for the shapes and sizes of what `queues` will never run. */
  static createMeta(budgetBytes: number, queues: DeviceQueues): TensorArena {
    return new TensorArena(queues, budgetBytes, OVERFLOW_BYTES[0]!);
  }

  /** The queues by which the memory is used. */
  get queues(): DeviceQueues {
    return this.#queues;
  }

  /**
   * Memory of undefined content that `queue` may write from its next command on.
   *
   * @throws DEVICE_OUT_OF_MEMORY; nothing changes then
   */
  allocate(
    byteLength: number,
    queue: typeof COMPUTE | typeof UPLOAD,
    label: string,
  ): TensorStorage {
    const chargedBytes = alignUp(byteLength, TENSOR_ALIGNMENT);
    this.ledger.charge(chargedBytes, label);
    const relative = chargedBytes === 0 ? 0 : this.#take(chargedBytes, queue);
    if (relative === undefined) {
      this.ledger.release(chargedBytes);
      throw new SpillwayError(
        'DEVICE_OUT_OF_MEMORY',
        `no free range of the address space is long enough for ${label}; lower device_memory`,
        { neededBytes: chargedBytes, ...this.ledger.facts() },
      );
    }
    return makeStorage(this.#queues.baseAddress + relative, chargedBytes, queue === COMPUTE);
  }

  /** Throws what `allocate` of so many bytes would throw for the budget. */
  check(byteLength: number, label: string): void {
    this.ledger.check(alignUp(byteLength, TENSOR_ALIGNMENT), label);
  }

  /** The memory of someone else, at `address`; never charged nor freed. */
  borrow(address: number): TensorStorage {
    return makeStorage(address, undefined, false);
  }

  /** Makes every later command of the compute queue see what uploads have put into `storage`. */
  useInKernel(storage: TensorStorage): void {
    storage.isComputed = true;
    if (storage.uploadSequence > 0) this.#queues.wait(COMPUTE, UPLOAD, storage.uploadSequence);
  }

  /** Makes every later command of the download queue see all that was written to `storage`. */
  useInDownload(storage: TensorStorage): void {
    const queues = this.#queues;
    if (storage.isComputed) {
      queues.wait(DOWNLOAD, COMPUTE, storage.completeSequence ?? queues.submitted(COMPUTE));
    }
    if (storage.uploadSequence > 0) queues.wait(DOWNLOAD, UPLOAD, storage.uploadSequence);
  }

  /** No kernel that is launched from now on writes to `storage`: downloads wait for none of them. */
  complete(storage: TensorStorage): void {
    storage.completeSequence ??= this.#queues.submitted(COMPUTE);
  }

  /** Drops one holder; with the last one the memory is free for what is submitted from now on. */
  release(storage: TensorStorage): void {
    storage.holders -= 1;
    const { chargedBytes, address, uploadSequence, downloadSequence } = storage;
    if (storage.holders > 0 || chargedBytes === undefined) return;
    assert(storage.holders === 0, 'a storage is released once by each holder');
    this.ledger.release(chargedBytes);
    if (chargedBytes === 0) return;
    const queues = this.#queues;
    const computeSequence = storage.isComputed ? queues.submitted(COMPUTE) : 0;
    const tags = [computeSequence, uploadSequence, downloadSequence];
    const relative = address - queues.baseAddress;
    if (relative < this.#mainBytes) {
      this.#main.release(relative, tags);
      this.#main.settle(() => QUEUES.map((queue) => queues.completed(queue)));
    } else {
      const discarded = this.#discard(address, chargedBytes, tags);
      this.#overflow.release(relative - this.#mainBytes, discarded);
      this.#overflow.settle(() => QUEUES.map((queue) => queues.completed(queue)));
    }
  }

  /** Where `length` bytes lie from the arena's start, free for `queue` from its next command on. */
  #take(length: number, queue: QueueId): number | undefined {
    const inMain = this.#main.allocate(length, queue === COMPUTE ? 'low' : 'high');
    const range = inMain ?? this.#overflow.allocate(length, 'low');
    if (range === undefined) return undefined;
    for (const other of QUEUES) this.#queues.wait(queue, other, range.tags[other]!);
    return inMain === undefined ? this.#mainBytes + range.offset : range.offset;
  }

  /** Gives the whole pages of a range back, behind its last uses; returns its tags from then on. */
  #discard(address: number, length: number, tags: ReleaseTags): ReleaseTags {
    const from = alignUp(address, HUGE_PAGE_BYTES);
    const to = alignDown(address + length, HUGE_PAGE_BYTES);
    if (to <= from) return tags;
    for (const other of [UPLOAD, DOWNLOAD] as const) {
      this.#queues.wait(COMPUTE, other, tags[other]!);
    }
    this.#queues.discard(from, to - from);
    return [this.#queues.submitted(COMPUTE), 0, 0];
  }
}

/** Bytes of address space in which tensors are placed first. */
function mainSize(budgetBytes: number): number {
  return alignUp(budgetBytes, TENSOR_ALIGNMENT);
}

function makeStorage(
  address: number,
  chargedBytes: number | undefined,
  isComputed: boolean,
): TensorStorage {
  return {
    address,
    chargedBytes,
    holders: 1,
    isComputed,
    completeSequence: undefined,
    uploadSequence: 0,
    downloadSequence: 0,
  };
}
