/**
 * @file A bounded number of tasks at once, their results in the order of the items.
 *
 * The failure that comes first in that order is the one that is thrown, whatever the timing: also
 * when the items themselves fail, the results of earlier ones are awaited first.
 */

/**
 * Starts `run` for each item, at most `limit` unfinished or untaken at once, and gives the results
 * to `take` in order.
 *
 * After a failure tasks may still be running; ending them is up to the caller, and how they end is
 * ignored.
 */
export async function runInOrder<T, R>(
  items: AsyncIterable<T>,
  limit: number,
  run: (item: T) => Promise<R>,
  take: (result: R) => void,
): Promise<void> {
  const running: Promise<R>[] = [];
  const takeAll = async (most: number): Promise<void> => {
    while (running.length > most) take(await running.shift()!);
  };
  const iterator = items[Symbol.asyncIterator]();
  try {
    for (;;) {
      let next: IteratorResult<T, unknown>;
      try {
        next = await iterator.next();
      } catch (error) {
        await takeAll(0);
        throw error;
      }
      if (next.done === true) break;
      const task = run(next.value);
      // It is awaited when its turn comes; until then a failure has no other listener.
      task.catch(() => undefined);
      running.push(task);
      await takeAll(limit - 1);
    }
    await takeAll(0);
  } finally {
    await iterator.return?.();
  }
}
