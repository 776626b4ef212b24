// Goal: results and the failure come in the order of the items, with a bounded number under way.
import { setImmediate as nextTurn } from 'node:timers/promises';
import fc from 'fast-check';
import { expect, it } from 'vitest';
import { runInOrder } from '../../src/data/run-in-order.js';

/** An item takes `turns` turns of the event loop and then may fail. */
interface Item {
  readonly turns: number;
  readonly fails: boolean;
}

const items = fc.array(
  fc.record({
    turns: fc.nat(4),
    fails: fc.nat(5).map((draw) => draw === 0),
  }),
  { maxLength: 12 },
);

async function* source(given: readonly Item[], failsAtEnd: boolean) {
  for (const [index, item] of given.entries()) {
    await nextTurn();
    yield { ...item, index };
  }
  if (failsAtEnd) throw new Error('source');
}

it('gives what a loop gives, for every timing', async () => {
  await fc.assert(
    fc.asyncProperty(
      items,
      fc.boolean(),
      fc.integer({ min: 1, max: 5 }),
      async (given, failsAtEnd, limit) => {
        let running = 0;
        let most = 0;
        const taken: number[] = [];
        const outcome = await runInOrder(
          source(given, failsAtEnd),
          limit,
          async ({ turns, fails, index }) => {
            running += 1;
            most = Math.max(most, running);
            for (let turn = 0; turn < turns; turn += 1) await nextTurn();
            running -= 1;
            if (fails) throw new Error(`item ${index}`);
            return index;
          },
          (index) => taken.push(index),
        ).catch((error: unknown) => (error as Error).message);
        const failing = given.findIndex((item) => item.fails);
        const expected = failing >= 0 ? `item ${failing}` : failsAtEnd ? 'source' : undefined;
        expect(outcome).toBe(expected);
        expect(taken).toEqual([...given.keys()].slice(0, failing < 0 ? undefined : failing));
        expect(most).toBeLessThanOrEqual(limit);
      },
    ),
    { numRuns: 100 },
  );
});

it('keeps the limit of tasks under way, and stops the source after a failure', async () => {
  let ended = false;
  let started = 0;
  async function* endless() {
    try {
      for (let index = 0; ; index += 1) yield await Promise.resolve(index);
    } finally {
      ended = true;
    }
  }
  const first = runInOrder(
    endless(),
    3,
    async (index) => {
      started += 1;
      if (index > 0) return index;
      for (let turn = 0; turn < 20; turn += 1) await nextTurn();
      expect(started).toBe(3);
      throw new Error('first');
    },
    () => undefined,
  );
  await expect(first).rejects.toThrow('first');
  expect(ended).toBe(true);
});
