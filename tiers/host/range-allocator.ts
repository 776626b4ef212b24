/**
 * @file Hands out ranges of an address space of fixed size. Numbers only: it owns no memory.
 *
 * Invariant: free ranges are sorted, disjoint, never adjacent; free and live ranges together cover
 * the space exactly. Best fit, lowest offset among equals, so results depend on the calls alone.
 */
import { assert } from '../../core/errors.js';

interface FreeRange {
  offset: number;
  length: number;
}

export class RangeAllocator {
  readonly capacity: number;
  /** Every offset and length is a multiple of it. */
  readonly granularity: number;
  readonly #free: FreeRange[];
  readonly #live = new Map<number, number>();
  #liveBytes = 0;

  /** @param capacity a multiple of `granularity` */
  constructor(capacity: number, granularity: number) {
    assert(capacity > 0 && capacity % granularity === 0, 'capacity is whole granules', {
      capacity,
      granularity,
    });
    this.capacity = capacity;
    this.granularity = granularity;
    this.#free = [{ offset: 0, length: capacity }];
  }

  get liveBytes(): number {
    return this.#liveBytes;
  }

  /** Number of free ranges; 1 when nothing is allocated, 0 when everything is. */
  get freeRangeCount(): number {
    return this.#free.length;
  }

  /** Length of the longest free range. */
  get largestFreeBytes(): number {
    return this.#free.reduce((largest, range) => Math.max(largest, range.length), 0);
  }

  /**
   * Takes `length` bytes, a positive multiple of the granularity.
   *
   * @returns the offset, or undefined when no free range is long enough; nothing changes then
   */
  allocate(length: number): number | undefined {
    assert(length > 0 && length % this.granularity === 0, 'a range is whole granules', { length });
    let bestIndex = -1;
    let bestLength = Infinity;
    this.#free.forEach((range, index) => {
      if (range.length >= length && range.length < bestLength) {
        bestIndex = index;
        bestLength = range.length;
      }
    });
    const best = this.#free[bestIndex];
    if (best === undefined) return undefined;
    const offset = best.offset;
    best.offset += length;
    best.length -= length;
    if (best.length === 0) this.#free.splice(bestIndex, 1);
    this.#live.set(offset, length);
    this.#liveBytes += length;
    return offset;
  }

  /** Gives back the range that starts at `offset` and merges it with its neighbours. */
  release(offset: number): void {
    const length = this.#live.get(offset);
    assert(length !== undefined, 'a range is released once', { offset });
    this.#live.delete(offset);
    this.#liveBytes -= length;
    const index = this.#firstFreeAfter(offset);
    const before = this.#free[index - 1];
    const after = this.#free[index];
    const joinsBefore = before !== undefined && before.offset + before.length === offset;
    const joinsAfter = after?.offset === offset + length;
    if (joinsBefore) {
      before.length += length + (joinsAfter ? after.length : 0);
      if (joinsAfter) this.#free.splice(index, 1);
    } else if (joinsAfter) {
      after.offset = offset;
      after.length += length;
    } else {
      this.#free.splice(index, 0, { offset, length });
    }
  }

  /** Index of the first free range beyond `offset`. */
  #firstFreeAfter(offset: number): number {
    let low = 0;
    let high = this.#free.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if ((this.#free[middle]?.offset ?? Infinity) < offset) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}
