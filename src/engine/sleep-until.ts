/**
 * @file Waits to a point in time, more finely than timers do.
 */
import { setImmediate as turn, setTimeout as sleep } from 'node:timers/promises';

/** Resolves at `end`, in milliseconds of `performance.now()`; at once when that is past. */
export async function sleepUntil(end: number): Promise<void> {
  // Timers count whole milliseconds and may fire a little early; what is left is spent turning.
  for (let left = end - performance.now(); left > 0; left = end - performance.now()) {
    await (left >= 1 ? sleep(Math.floor(left)) : turn());
  }
}
