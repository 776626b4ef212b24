/**
 * @file AdamW in TypeScript: the bits of native/adamw.cc, for machines without the addon.
 */
import type { Kernels } from '../native-binding.js';
import type { AdamwFactors } from './adamw-factors.js';
import { adamwFactors } from './adamw-factors.js';
import { bitsOf, checkLength, checkType } from './check-arguments.js';
import { fusedMultiplyAdd } from './fused-multiply-add.js';
import { joinBits, splitHigh, splittableBits } from './split-master.js';

const { fround, sqrt } = Math;

/** See `Kernels.adamw`. */
export const adamw: Kernels['adamw'] = (param, grad, expAvg, expAvgSq, scalars) => {
  checkType('param', param, Float32Array);
  checkMoments(param.length, grad, expAvg, expAvgSq);
  const factors = adamwFactors(scalars);
  for (let i = 0; i < param.length; i++) {
    param[i] = update(param[i]!, grad[i]!, expAvg, expAvgSq, i, factors);
  }
};

/** See `Kernels.adamwSplit`. */
export const adamwSplit: Kernels['adamwSplit'] = (
  param,
  masterLo,
  grad,
  expAvg,
  expAvgSq,
  scalars,
) => {
  checkType('param', param, Uint16Array);
  checkType('masterLo', masterLo, Uint16Array);
  checkLength('masterLo', masterLo.length, param.length);
  checkMoments(param.length, grad, expAvg, expAvgSq);
  const factors = adamwFactors(scalars);
  const master = new Float32Array(1);
  const masterBits = bitsOf(master);
  for (let i = 0; i < param.length; i++) {
    masterBits[0] = joinBits(param[i]!, masterLo[i]!);
    master[0] = update(master[0]!, grad[i]!, expAvg, expAvgSq, i, factors);
    const bits = splittableBits(masterBits[0]);
    param[i] = splitHigh(bits);
    masterLo[i] = bits;
  }
};

function checkMoments(
  length: number,
  grad: Float32Array,
  expAvg: Float32Array,
  expAvgSq: Float32Array,
): void {
  checkType('grad', grad, Float32Array);
  checkType('expAvg', expAvg, Float32Array);
  checkType('expAvgSq', expAvgSq, Float32Array);
  checkLength('grad', grad.length, length);
  checkLength('expAvg', expAvg.length, length);
  checkLength('expAvgSq', expAvgSq.length, length);
}

/**
 * Updates the moments at `i` and returns the new parameter (not yet rounded by a store).
 *
 * Sums, quotients and square roots of float32 values, computed in double and rounded to float32,
 * equal those computed in float32: 53 bits are at least twice 24 plus 2 (Figueroa 1995).
 */
function update(
  param: number,
  grad: number,
  expAvg: Float32Array,
  expAvgSq: Float32Array,
  i: number,
  f: AdamwFactors,
): number {
  const g = fround(grad * f.gradScale);
  const decayed = fround(param * f.decay);
  const oldM = expAvg[i]!;
  const m = fusedMultiplyAdd(f.lerpWeight, fround(g - oldM), f.lerpFromGrad ? g : oldM);
  const v = fusedMultiplyAdd(fround(f.oneMinusBeta2 * g), g, fround(expAvgSq[i]! * f.beta2));
  expAvg[i] = m;
  expAvgSq[i] = v;
  const denominator = fround(fround(fround(sqrt(v)) / f.sqrtBiasCorrection2) + f.epsilon);
  return fround(decayed + fround(fround(f.negativeStepSize * m) / denominator));
}
