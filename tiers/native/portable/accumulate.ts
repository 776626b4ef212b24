/**
 * @file `target += source`; twin of native/accumulate.cc.
 */
import type { Kernels } from '../native-binding.js';
import { checkLength, checkType } from './check-arguments.js';

/** See `Kernels.accumulate`. */
export const accumulate: Kernels['accumulate'] = (target, source) => {
  checkType('target', target, Float32Array);
  checkType('source', source, Float32Array);
  checkLength('source', source.length, target.length);
  for (let i = 0; i < target.length; i++) target[i] = target[i]! + source[i]!;
};
