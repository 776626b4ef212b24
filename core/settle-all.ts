/**
 * @file Waits for several promises, all of them, before an error leaves.
 */

/** Waits until every promise is settled. @throws the first rejection, in the order given */
export async function settleAll(promises: Iterable<Promise<unknown>>): Promise<void> {
  const results = await Promise.allSettled(promises);
  const failed = results.find(({ status }) => status === 'rejected');
  if (failed?.status === 'rejected') throw failed.reason;
}
