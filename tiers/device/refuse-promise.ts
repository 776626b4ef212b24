/**
 * @file Code that runs on a device is synchronous.
 */
import { SpillwayError } from '../../core/errors.js';

/** Returns `result`. @throws BLOCK_INVALID when it is a promise */
export function refusePromise<T>(result: T): T {
  if (!(result instanceof Promise)) return result;
  // Its outcome has no other listener.
  result.catch(() => undefined);
  throw new SpillwayError(
    'BLOCK_INVALID',
    'code that runs on a device returned a promise; it must be synchronous',
  );
}
