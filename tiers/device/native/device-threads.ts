/**
 * @file How many threads the native device's kernels run on.
 */
import { availableParallelism } from 'node:os';
import { SpillwayError } from '../../../core/errors.js';

/** The addon's own limit (native/device-runtime.cc). */
const MOST_THREADS = 1024;

/**
 * `SPILLWAY_THREADS`, else the cores that this process may use. No result depends on it.
 *
 * @throws CONFIG_INVALID when the variable is no number from 1 to 1024
 */
export function deviceThreads(): number {
  const text = process.env['SPILLWAY_THREADS'] ?? '';
  if (text === '') return availableParallelism();
  const threads = Number(text);
  if (Number.isInteger(threads) && threads >= 1 && threads <= MOST_THREADS) return threads;
  throw new SpillwayError(
    'CONFIG_INVALID',
    `SPILLWAY_THREADS is "${text}"; use a whole number from 1 to ${MOST_THREADS}`,
  );
}
