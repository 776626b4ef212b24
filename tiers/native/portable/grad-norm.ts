/**
 * @file Leaves of the gradient norm; twin of native/grad-norm.cc.
 */
import { NORM_LEAF_ELEMENTS } from '../../../core/types.js';
import type { Kernels } from '../native-binding.js';
import { checkLength, checkType } from './check-arguments.js';

/** Accumulators per leaf; part of the sum's definition. */
const LANES = 16;

/** See `Kernels.squaredNormLeaves`. */
export const squaredNormLeaves: Kernels['squaredNormLeaves'] = (values, leaves) => {
  checkType('values', values, Float32Array);
  checkType('leaves', leaves, Float64Array);
  checkLength('leaves', leaves.length, Math.ceil(values.length / NORM_LEAF_ELEMENTS));
  const lanes = new Float64Array(LANES);
  for (let leaf = 0; leaf < leaves.length; leaf++) {
    const start = leaf * NORM_LEAF_ELEMENTS;
    const end = Math.min(start + NORM_LEAF_ELEMENTS, values.length);
    lanes.fill(0);
    for (let i = start; i < end; i++) {
      const value = values[i]!;
      const lane = (i - start) % LANES;
      lanes[lane] = lanes[lane]! + value * value;
    }
    leaves[leaf] = lanes.reduce((sum, lane) => sum + lane, 0);
  }
};
