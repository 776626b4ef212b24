// Goal: an area is filled only once everything that used bytes of it is over, exactly that.
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { RegionTracker } from '../../src/plan/region-tracker.js';

describe('RegionTracker', () => {
  it('waits for nothing where nobody has been', () => {
    const tracker = new RegionTracker();
    const first = tracker.claim({ start: 0, end: 10 }, () => undefined);
    tracker.use(first.claim, 1);
    expect(tracker.claim({ start: 10, end: 20 }, () => undefined).after).toEqual([]);
  });

  it('waits for users of bytes whose claim was covered in part, and later in full', () => {
    const tracker = new RegionTracker();
    const lost: string[] = [];
    const wide = tracker.claim({ start: 0, end: 10 }, () => lost.push('wide'));
    tracker.use(wide.claim, 1);
    const narrow = tracker.claim({ start: 0, end: 4 }, () => lost.push('narrow'));
    expect(narrow.after).toEqual([1]);
    tracker.use(narrow.claim, 2);
    // Bytes 4 to 10 are still those that operation 1 uses; it is told of its loss once.
    expect(tracker.claim({ start: 2, end: 6 }, () => undefined).after.toSorted()).toEqual([1, 2]);
    expect(lost).toEqual(['wide', 'narrow']);
  });

  it('agrees with bytes that remember their users', () => {
    const claims = fc.record({
      start: fc.integer({ min: 0, max: 15 }),
      length: fc.integer({ min: 1, max: 8 }),
      useCount: fc.integer({ min: 0, max: 3 }),
    });
    fc.assert(
      fc.property(fc.array(claims, { maxLength: 12 }), (sequence) => {
        const tracker = new RegionTracker();
        // Users of each byte since ever; whom a later claim waited for is over anyway.
        const bytes = Array.from({ length: 24 }, () => new Set<number>());
        const over = new Map<number, Set<number>>();
        let operation = 0;
        const contents: { area: { start: number; end: number }; lost: number; whole: boolean }[] =
          [];
        for (const { start, length, useCount } of sequence) {
          const area = { start, end: start + length };
          const content = { area, lost: 0, whole: true };
          for (const other of contents) {
            if (other.area.start < area.end && area.start < other.area.end) other.whole = false;
          }
          const { after, claim } = tracker.claim(area, () => (content.lost += 1));
          contents.push(content);
          const touched = new Set(bytes.slice(start, area.end).flatMap((users) => [...users]));
          const implied = new Set(after.flatMap((id) => [id, ...(over.get(id) ?? [])]));
          for (const user of touched) expect(implied.has(user)).toBe(true);
          const allowed = new Set([...touched].flatMap((id) => [id, ...(over.get(id) ?? [])]));
          for (const user of after) expect(allowed.has(user)).toBe(true);
          for (let use = 0; use <= useCount; use += 1) {
            operation += 1;
            tracker.use(claim, operation);
            over.set(operation, new Set(implied));
            for (const users of bytes.slice(start, area.end)) users.add(operation);
          }
          for (const one of contents) expect(one.lost).toBe(one.whole ? 0 : 1);
        }
      }),
    );
  });
});
