// Goal: ranges never overlap, account exactly and merge back, against a model of granules.
import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import { RangeAllocator } from '../../tiers/host/range-allocator.js';

const GRANULE = 4096;
const GRANULES = 64;

const commands = fc.array(
  fc.oneof(
    fc.record({ kind: fc.constant('allocate'), granules: fc.integer({ min: 1, max: 20 }) }),
    fc.record({ kind: fc.constant('release'), pick: fc.nat() }),
  ),
  { maxLength: 200 },
);

describe('RangeAllocator', () => {
  it('agrees with a map of granules on overlap, bytes, longest range and refusals', () => {
    fc.assert(
      fc.property(commands, (list) => {
        const ranges = new RangeAllocator(GRANULES * GRANULE, GRANULE);
        const taken = Array.from({ length: GRANULES }, () => false);
        const live: { offset: number; granules: number }[] = [];
        for (const command of list) {
          if ('granules' in command) {
            const { granules } = command;
            const longest = longestFreeRun(taken);
            const offset = ranges.allocate(granules * GRANULE);
            expect(offset !== undefined).toBe(granules <= longest);
            if (offset === undefined) continue;
            expect(offset % GRANULE).toBe(0);
            for (let index = 0; index < granules; index += 1) {
              expect(taken[offset / GRANULE + index]).toBe(false);
              taken[offset / GRANULE + index] = true;
            }
            live.push({ offset, granules });
          } else if (live.length > 0) {
            const [range] = live.splice(command.pick % live.length, 1);
            ranges.release(range!.offset);
            taken.fill(false, range!.offset / GRANULE, range!.offset / GRANULE + range!.granules);
          }
          expect(ranges.liveBytes).toBe(taken.filter(Boolean).length * GRANULE);
          expect(ranges.largestFreeBytes).toBe(longestFreeRun(taken) * GRANULE);
          expect(ranges.freeRangeCount).toBe(freeRunCount(taken));
        }
        for (const { offset } of live) ranges.release(offset);
        expect(ranges.freeRangeCount).toBe(1);
        expect(ranges.largestFreeBytes).toBe(GRANULES * GRANULE);
      }),
      { numRuns: 300 },
    );
  });

  it('takes the shortest range that fits, so that long ones stay whole', () => {
    const ranges = new RangeAllocator(10 * GRANULE, GRANULE);
    const first = ranges.allocate(2 * GRANULE)!;
    ranges.allocate(GRANULE);
    ranges.release(first);
    expect(ranges.allocate(GRANULE)).toBe(first);
    expect(ranges.largestFreeBytes).toBe(7 * GRANULE);
  });

  it('refuses a second release and a length that is no whole granule', () => {
    const ranges = new RangeAllocator(4 * GRANULE, GRANULE);
    const offset = ranges.allocate(GRANULE)!;
    ranges.release(offset);
    expect(() => ranges.release(offset)).toThrow('released once');
    expect(() => ranges.allocate(100)).toThrow('whole granules');
  });
});

function longestFreeRun(taken: readonly boolean[]): number {
  let longest = 0;
  let run = 0;
  for (const flag of taken) {
    run = flag ? 0 : run + 1;
    longest = Math.max(longest, run);
  }
  return longest;
}

function freeRunCount(taken: readonly boolean[]): number {
  return taken.filter((flag, index) => !flag && (index === 0 || taken[index - 1] === true)).length;
}
