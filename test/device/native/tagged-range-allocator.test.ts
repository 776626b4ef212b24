// Goal: ranges never overlap, tags are the maxima of their bytes, coalescing is exact.
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { TaggedRangeAllocator } from '../../../tiers/device/native/tagged-range-allocator.js';

const GRANULE = 4;
const GRANULES = 64;
const QUEUES = 3;

const step = fc.oneof(
  {
    weight: 5,
    arbitrary: fc.record({
      kind: fc.constant('allocate' as const),
      granules: fc.integer({ min: 1, max: 24 }),
      end: fc.constantFrom('low' as const, 'high' as const),
    }),
  },
  {
    weight: 5,
    arbitrary: fc.record({
      kind: fc.constant('release' as const),
      index: fc.nat(40),
      tags: fc.tuple(fc.nat(9), fc.nat(9), fc.nat(9)),
    }),
  },
);

/** Every granule on its own: who has it, and the tags of its last release. */
class ByGranule {
  readonly owner: (number | undefined)[] = Array.from({ length: GRANULES }, () => undefined);
  readonly tags: number[][] = Array.from({ length: GRANULES }, () => [0, 0, 0]);

  /** Runs of granules that nobody has, in order. */
  freeRuns(): { start: number; length: number }[] {
    const runs: { start: number; length: number }[] = [];
    this.owner.forEach((owner, index) => {
      if (owner !== undefined) return;
      const last = runs.at(-1);
      if (last !== undefined && last.start + last.length === index) last.length += 1;
      else runs.push({ start: index, length: 1 });
    });
    return runs;
  }

  /** Pieces of free runs whose neighbours within the run differ in their tags. */
  segmentCount(): number {
    return this.freeRuns().reduce((sum, { start, length }) => {
      let count = 1;
      for (let index = start + 1; index < start + length; index++) {
        if (this.tags[index]!.join() !== this.tags[index - 1]!.join()) count += 1;
      }
      return sum + count;
    }, 0);
  }
}

describe('TaggedRangeAllocator', () => {
  test('does what a table of granules does, first fit from either end', () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 120 }), (steps) => {
        const allocator = new TaggedRangeAllocator(GRANULES * GRANULE, GRANULE, QUEUES);
        const model = new ByGranule();
        const live: { offset: number; granules: number; id: number }[] = [];
        for (const [id, command] of steps.entries()) {
          if (command.kind === 'allocate') {
            const { granules, end } = command;
            const runs = model.freeRuns().filter(({ length }) => length >= granules);
            const run = end === 'low' ? runs[0] : runs.at(-1);
            const range = allocator.allocate(granules * GRANULE, end);
            if (run === undefined) {
              expect(range).toBeUndefined();
              continue;
            }
            const start = end === 'low' ? run.start : run.start + run.length - granules;
            const taken = model.tags.slice(start, start + granules);
            expect(range).toEqual({
              offset: start * GRANULE,
              length: granules * GRANULE,
              tags: [0, 1, 2].map((queue) => Math.max(...taken.map((tags) => tags[queue]!))),
            });
            model.owner.fill(id, start, start + granules);
            live.push({ offset: start * GRANULE, granules, id });
          } else if (live.length > 0) {
            const [{ offset, granules }] = live.splice(command.index % live.length, 1) as [
              (typeof live)[number],
            ];
            allocator.release(offset, command.tags);
            const start = offset / GRANULE;
            model.owner.fill(undefined, start, start + granules);
            for (let index = start; index < start + granules; index++) {
              model.tags[index] = command.tags;
            }
          }
          const runs = model.freeRuns();
          expect(allocator.freeRangeCount).toBe(runs.length);
          expect(allocator.largestFreeBytes).toBe(
            Math.max(0, ...runs.map(({ length }) => length)) * GRANULE,
          );
          expect(allocator.liveBytes).toBe(
            live.reduce((sum, { granules }) => sum + granules, 0) * GRANULE,
          );
          expect(allocator.segmentCount).toBe(model.segmentCount());
        }
      }),
      { numRuns: 500 },
    );
  });

  test('is one free range without a tag again when all is released and has run', () => {
    const count = 1000;
    const allocator = new TaggedRangeAllocator(count * 64, 64, QUEUES);
    const offsets = Array.from({ length: count }, () => allocator.allocate(64, 'low')!.offset);
    for (const [index, offset] of offsets.entries()) allocator.release(offset, [index + 1, 0, 0]);
    expect(allocator.freeRangeCount).toBe(1);
    expect(allocator.segmentCount).toBe(count);
    allocator.settle(() => [count / 2, 0, 0]);
    expect(allocator.segmentCount).toBe(1 + count / 2);
    // What is still in flight keeps its tags.
    expect(allocator.allocate(count * 64, 'high')!.tags).toEqual([count, 0, 0]);
    allocator.release(0, [count + 1, 5, 0]);
    expect(allocator.allocate(64, 'low')!.tags).toEqual([count + 1, 5, 0]);
  });

  test('settles seldom: what is in flight is not walked through at every release', () => {
    const allocator = new TaggedRangeAllocator(4096 * 64, 64, QUEUES);
    const offsets = Array.from({ length: 4096 }, () => allocator.allocate(64, 'low')!.offset);
    let asked = 0;
    for (const [index, offset] of offsets.entries()) {
      allocator.release(offset, [index + 1, 0, 0]);
      allocator.settle(() => {
        asked += 1;
        return [0, 0, 0];
      });
    }
    expect(asked).toBeGreaterThan(0);
    expect(asked).toBeLessThan(10);
  });

  test('refuses a second release, odd lengths and tags of another number of queues', () => {
    const allocator = new TaggedRangeAllocator(256, 64, QUEUES);
    const { offset } = allocator.allocate(64, 'low')!;
    expect(() => allocator.release(offset, [1])).toThrow('one tag per queue');
    allocator.release(offset, [0, 0, 0]);
    expect(() => allocator.release(offset, [0, 0, 0])).toThrow('released once');
    expect(() => allocator.allocate(65, 'low')).toThrow('whole granules');
    expect(() => allocator.allocate(0, 'low')).toThrow('whole granules');
    expect(new TaggedRangeAllocator(0, 64, QUEUES).allocate(64, 'low')).toBeUndefined();
  });
});
