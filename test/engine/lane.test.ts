// Goal: a lane lets in its capacity, and of those that wait the lowest number.
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Lane } from '../../src/engine/lane.js';

const settle = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

describe('Lane', () => {
  it('lets in as many as its capacity, then the lowest number that waits', async () => {
    const lane = new Lane(2);
    const begun: number[] = [];
    for (const id of [9, 7, 5, 8, 3]) void lane.enter(id).then(() => begun.push(id));
    await settle();
    expect(begun).toEqual([9, 7]);
    for (let turn = 0; turn < 3; turn += 1) {
      lane.leave();
      await settle();
    }
    expect(begun).toEqual([9, 7, 3, 5, 8]);
  });

  it('serves equal numbers in the order in which they came', async () => {
    const lane = new Lane(1);
    const begun: string[] = [];
    await lane.enter(0);
    for (const name of ['first', 'second', 'third']) {
      void lane.enter(4).then(() => begun.push(name));
    }
    for (let turn = 0; turn < 3; turn += 1) {
      lane.leave();
      await settle();
    }
    expect(begun).toEqual(['first', 'second', 'third']);
  });

  it('never holds more than its capacity, and leaves nobody behind', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.integer({ min: 1, max: 4 }),
        fc.array(fc.integer({ min: 0, max: 20 }), { maxLength: 20 }),
        fc.infiniteStream(fc.boolean()),
        async (capacity, ids, leaves) => {
          const lane = new Lane(capacity);
          let inside = 0;
          let served = 0;
          const enter = (id: number): void => {
            void lane.enter(id).then(() => {
              inside += 1;
              served += 1;
            });
          };
          const leave = async (): Promise<void> => {
            inside -= 1;
            lane.leave();
            await Promise.resolve();
          };
          for (const id of ids) {
            enter(id);
            await settle();
            expect(inside).toBeLessThanOrEqual(capacity);
            if (inside > 0 && leaves.next().value === true) await leave();
          }
          while (served < ids.length || inside > 0) {
            await settle();
            expect(inside).toBe(Math.min(capacity, inside + ids.length - served));
            await leave();
          }
          expect(() => lane.leave()).toThrow('a lane is left by who entered it');
        },
      ),
      { numRuns: 40 },
    );
  });
});
