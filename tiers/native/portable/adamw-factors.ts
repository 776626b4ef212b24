/**
 * @file The scalars of one AdamW update, computed in double and rounded to float32 once.
 *
 * Addon and TypeScript twin both start from these numbers, so neither has to raise a power of its
 * own: library powers differ in their last bits. Rounding as torch does it (docs/adamw-bits.md).
 */
import type { AdamwScalars } from '../native-binding.js';

/** What an update multiplies with; every number is a float32 value. */
export interface AdamwFactors {
  readonly gradScale: number;
  /** `exp_avg = fma(lerpWeight, g - exp_avg, lerpFromGrad ? g : exp_avg)`. */
  readonly lerpWeight: number;
  readonly lerpFromGrad: boolean;
  readonly beta2: number;
  readonly oneMinusBeta2: number;
  /** `sqrt(1 - beta2^step)`. */
  readonly sqrtBiasCorrection2: number;
  readonly epsilon: number;
  /** `1 - learningRate * weightDecay`. */
  readonly decay: number;
  /** `-learningRate / (1 - beta1^step)`. */
  readonly negativeStepSize: number;
}

/**
 * Derives the float32 factors of one update.
 *
 * @throws RangeError when `step` is not a positive whole number or a beta not within 0 .. 1 (less
 *   than 1)
 */
export function adamwFactors(scalars: AdamwScalars): AdamwFactors {
  const { learningRate, beta1, beta2, epsilon, weightDecay, step, gradScale } = scalars;
  checkBeta('beta1', beta1);
  checkBeta('beta2', beta2);
  const biasCorrection1 = 1 - power(beta1, step);
  const biasCorrection2 = 1 - power(beta2, step);
  const weight = Math.fround(1 - beta1);
  // torch's lerp starts from the nearer end: from `g` when the weight is at least a half.
  const lerpFromGrad = Math.abs(weight) >= 0.5;
  return {
    gradScale: Math.fround(gradScale),
    lerpWeight: lerpFromGrad ? Math.fround(weight - 1) : weight,
    lerpFromGrad,
    beta2: Math.fround(beta2),
    oneMinusBeta2: Math.fround(1 - beta2),
    sqrtBiasCorrection2: Math.fround(Math.sqrt(biasCorrection2)),
    epsilon: Math.fround(epsilon),
    decay: Math.fround(1 - learningRate * weightDecay),
    negativeStepSize: Math.fround(-(learningRate / biasCorrection1)),
  };
}

function checkBeta(name: string, value: number): void {
  if (value >= 0 && value < 1) return;
  throw new RangeError(`${name} must be at least 0 and less than 1, not ${value}`);
}

/**
 * `base ** exponent` in double-double arithmetic, rounded once: V8's own power is off by a bit now
 * and then. Exact products are Dekker's (1971).
 */
export function power(base: number, exponent: number): number {
  if (!Number.isSafeInteger(exponent) || exponent < 1) {
    throw new RangeError(`step must be a positive whole number, not ${exponent}`);
  }
  let result: Pair = [1, 0];
  let square: Pair = [base, 0];
  for (let rest = exponent; rest > 0; rest = Math.floor(rest / 2)) {
    if (rest % 2 === 1) result = multiply(result, square);
    square = multiply(square, square);
  }
  return result[0] + result[1];
}

/** An unevaluated sum `high + low` with `|low|` at most half a unit in the last place of `high`. */
type Pair = readonly [high: number, low: number];

function multiply(a: Pair, b: Pair): Pair {
  const high = a[0] * b[0];
  const low = productError(a[0], b[0], high) + (a[0] * b[1] + a[1] * b[0]);
  const sum = high + low;
  return [sum, low - (sum - high)];
}

function productError(a: number, b: number, product: number): number {
  const [aHigh, aLow] = halves(a);
  const [bHigh, bLow] = halves(b);
  return aLow * bLow - (product - aHigh * bHigh - aLow * bHigh - aHigh * bLow);
}

function halves(value: number): Pair {
  const scaled = value * (2 ** 27 + 1);
  const high = scaled - (scaled - value);
  return [high, value - high];
}
