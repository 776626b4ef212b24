/**
 * @file Hands out ranges of an address space whose users run behind: each free byte carries, per
 * queue, the number of the last command that may still touch it.
 *
 * Numbers only: it owns no memory. A release names the last command of each queue that uses the
 * range (its tags); an allocation returns the highest tags among the bytes that it takes, so that
 * the new owner's queue waits for exactly the commands that could be in its way. Where ranges come
 * to lie depends on the calls alone, never on tags or time.
 *
 * Policy: first fit, in order of addresses, from the low end or from the high end. Results of
 * kernels and uploads use opposite ends, so that an upload seldom lands where a kernel has just
 * written (it would wait for it), and the bytes ever touched stay few.
 *
 * Invariants: free ranges are sorted, disjoint and never adjacent; the segments of a free range
 * cover it exactly, in order, and neighbours among them differ in their tags; free and live ranges
 * together cover the space exactly.
 */
import { assert } from '../../../core/errors.js';

/** Per queue, the number of the last command that uses some bytes; 0 for none. */
export type ReleaseTags = readonly number[];

/** Which end of the space an allocation starts from. */
export type SpaceEnd = 'low' | 'high';

/** A range that was handed out. */
export interface TaggedRange {
  readonly offset: number;
  readonly length: number;
  /** Highest tags of its bytes before. */
  readonly tags: ReleaseTags;
}

interface Segment {
  start: number;
  end: number;
  readonly tags: ReleaseTags;
}

interface FreeRange {
  start: number;
  end: number;
  segments: Segment[];
}

/** Segments beyond which equal neighbours are looked for among those whose commands have run. */
const SETTLE_ABOVE = 256;

export class TaggedRangeAllocator {
  readonly capacity: number;
  readonly granularity: number;
  readonly #noTags: ReleaseTags;
  #free: FreeRange[];
  readonly #live = new Map<number, number>();
  #liveBytes = 0;
  #segmentCount = 1;
  #settleAbove = SETTLE_ABOVE;

  /**
   * @param capacity a multiple of `granularity`
   * @param queueCount length of the tags
   */
  constructor(capacity: number, granularity: number, queueCount: number) {
    assert(capacity >= 0 && capacity % granularity === 0, 'capacity is whole granules', {
      capacity,
      granularity,
    });
    this.capacity = capacity;
    this.granularity = granularity;
    this.#noTags = Array.from({ length: queueCount }, () => 0);
    const segments = [{ start: 0, end: capacity, tags: this.#noTags }];
    this.#free = capacity === 0 ? [] : [{ start: 0, end: capacity, segments }];
  }

  get liveBytes(): number {
    return this.#liveBytes;
  }

  /** Number of free ranges; 1 when nothing is allocated, 0 when everything is. */
  get freeRangeCount(): number {
    return this.#free.length;
  }

  /** Number of pieces with tags of their own within all free ranges. */
  get segmentCount(): number {
    return this.#segmentCount;
  }

  /** Length of the longest free range. */
  get largestFreeBytes(): number {
    let largest = 0;
    for (const { start, end } of this.#free) largest = Math.max(largest, end - start);
    return largest;
  }

  /**
   * Takes `length` bytes, a positive multiple of the granularity.
   *
   * @returns undefined when no free range is long enough; nothing changes then
   */
  allocate(length: number, end: SpaceEnd): TaggedRange | undefined {
    assert(length > 0 && length % this.granularity === 0, 'a range is whole granules', { length });
    const fits = (range: FreeRange): boolean => range.end - range.start >= length;
    const index = end === 'low' ? this.#free.findIndex(fits) : this.#free.findLastIndex(fits);
    const range = this.#free[index];
    if (range === undefined) return undefined;
    const offset = end === 'low' ? range.start : range.end - length;
    const tags = end === 'low' ? this.#takeLow(range, length) : this.#takeHigh(range, length);
    if (range.start === range.end) this.#free.splice(index, 1);
    this.#live.set(offset, length);
    this.#liveBytes += length;
    return { offset, length, tags };
  }

  /** Gives back the range that starts at `offset`, last used by the commands `tags`. */
  release(offset: number, tags: ReleaseTags): void {
    const length = this.#live.get(offset);
    assert(length !== undefined, 'a range is released once', { offset });
    assert(tags.length === this.#noTags.length, 'one tag per queue');
    this.#live.delete(offset);
    this.#liveBytes -= length;
    const released = { start: offset, end: offset + length, tags };
    const index = this.#firstFreeAfter(offset);
    const before = this.#free[index - 1];
    const after = this.#free[index];
    const joinsAfter = after?.start === released.end;
    if (before?.end === offset) {
      this.#append(before, released);
      if (joinsAfter) {
        for (const segment of after.segments) this.#append(before, segment, true);
        this.#free.splice(index, 1);
      }
    } else if (joinsAfter) {
      this.#prepend(after, released);
    } else {
      this.#free.splice(index, 0, { start: offset, end: released.end, segments: [released] });
      this.#segmentCount += 1;
    }
  }

  /**
   * Forgets tags up to `completed`, where there are so many segments that it pays. Call it now and
   * then; it changes no offset, and no wait that matters.
   */
  settle(completed: () => ReleaseTags): void {
    if (this.#segmentCount <= this.#settleAbove) return;
    const done = completed();
    const isSettled = (tags: ReleaseTags): boolean =>
      tags.every((tag, queue) => tag <= done[queue]!);
    this.#segmentCount = 0;
    this.#free = this.#free.map(({ segments }) => {
      const [first, ...rest] = segments.map((segment) =>
        isSettled(segment.tags) ? { ...segment, tags: this.#noTags } : segment,
      );
      const range: FreeRange = { start: first!.start, end: first!.end, segments: [first!] };
      this.#segmentCount += 1;
      for (const segment of rest) this.#append(range, segment);
      return range;
    });
    // What commands in flight keep apart is not looked at again before there is as much once more.
    this.#settleAbove = Math.max(SETTLE_ABOVE, 2 * this.#segmentCount);
  }

  #takeLow(range: FreeRange, length: number): ReleaseTags {
    const { segments } = range;
    range.start += length;
    let tags = segments[0]!.tags;
    let whole = 0;
    for (const segment of segments) {
      if (segment.start >= range.start) break;
      tags = highest(tags, segment.tags);
      if (segment.end > range.start) {
        segment.start = range.start;
        break;
      }
      whole += 1;
    }
    segments.splice(0, whole);
    this.#segmentCount -= whole;
    return tags;
  }

  #takeHigh(range: FreeRange, length: number): ReleaseTags {
    const { segments } = range;
    range.end -= length;
    let tags = segments.at(-1)!.tags;
    for (let segment = segments.at(-1); segment !== undefined; segment = segments.at(-1)) {
      if (segment.end <= range.end) break;
      tags = highest(tags, segment.tags);
      if (segment.start < range.end) {
        segment.end = range.end;
        break;
      }
      segments.pop();
      this.#segmentCount -= 1;
    }
    return tags;
  }

  /** Adds a segment behind the last one of `range`. */
  #append(range: FreeRange, segment: Segment, counted = false): void {
    const last = range.segments.at(-1)!;
    range.end = segment.end;
    if (isSame(last.tags, segment.tags)) {
      last.end = segment.end;
      if (counted) this.#segmentCount -= 1;
      return;
    }
    range.segments.push(segment);
    if (!counted) this.#segmentCount += 1;
  }

  #prepend(range: FreeRange, segment: Segment): void {
    const first = range.segments[0]!;
    range.start = segment.start;
    if (isSame(first.tags, segment.tags)) {
      first.start = segment.start;
      return;
    }
    range.segments.unshift(segment);
    this.#segmentCount += 1;
  }

  /** Index of the first free range beyond `offset`. */
  #firstFreeAfter(offset: number): number {
    let low = 0;
    let high = this.#free.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (this.#free[middle]!.start < offset) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}

function isSame(a: ReleaseTags, b: ReleaseTags): boolean {
  return a === b || a.every((tag, queue) => tag === b[queue]);
}

function highest(a: ReleaseTags, b: ReleaseTags): ReleaseTags {
  if (a === b || b.every((tag, queue) => tag <= a[queue]!)) return a;
  return a.map((tag, queue) => Math.max(tag, b[queue]!));
}
