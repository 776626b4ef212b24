/**
 * @file Numbers of the addon's kernels, looked up once per name.
 */
import { assert } from '../../../core/errors.js';
import { native } from '../../native/binding.js';

const ids = new Map<string, number>();

/** Number of the C++ kernel `name` (SPILLWAY_KERNEL in native/). @throws RangeError without one */
export function kernelIdOf(name: string): number {
  let id = ids.get(name);
  if (id === undefined) {
    const addon = native();
    assert(addon !== undefined, 'kernels are launched where the addon loads', { name });
    id = addon.kernelId(name);
    ids.set(name, id);
  }
  return id;
}
