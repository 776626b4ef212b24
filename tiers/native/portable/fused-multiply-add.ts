/**
 * @file The exact float32 fused multiply-add, by double arithmetic.
 *
 * A product of two float32 is exact in double (48 bits, exponents within double's range). The sum
 * with `c` is rounded to double and then to float32. The second rounding can only go wrong where
 * the double lies exactly in the middle of two float32 and the first rounding has hidden on which
 * side the true sum is; for every other double it rounds as the true sum does, because rounding
 * is monotonic and middles are doubles. In that rare case the error of the first sum (Knuth's
 * TwoSum, exact) decides.
 */

/** Sums of this size and beyond round to infinity: the middle of the largest float32 and 2^128. */
const OVERFLOW_MIDDLE = 2 ** 128 - 2 ** 103;
const FLOAT32_MAX = 2 ** 128 - 2 ** 104;

/**
 * `a * b + c` with one rounding, to nearest even, as `std::fma` on float32 gives.
 *
 * @param a float32 value, as are `b` and `c`
 * @returns a float32 value; subnormals, infinities and signed zeros as IEEE 754 says
 */
export function fusedMultiplyAdd(a: number, b: number, c: number): number {
  const product = a * b;
  const sum = product + c;
  const rounded = Math.fround(sum);
  // If `sum` is a middle, its reflection at `rounded`'s other side is the other float32.
  const other = sum + (sum - rounded);
  if (other === rounded || Math.fround(other) !== other) return rounded;
  return roundMiddle(product, c, sum, rounded, other);
}

function roundMiddle(
  product: number,
  c: number,
  sum: number,
  rounded: number,
  other: number,
): number {
  if (!Number.isFinite(sum)) return rounded;
  const back = sum - product;
  const error = product - (sum - back) + (c - back);
  if (error === 0) return rounded;
  if (!Number.isFinite(rounded)) {
    const towardsZero = error < 0 === sum > 0;
    if (Math.abs(sum) !== OVERFLOW_MIDDLE || !towardsZero) return rounded;
    return sum > 0 ? FLOAT32_MAX : -FLOAT32_MAX;
  }
  return error > 0 ? Math.max(rounded, other) : Math.min(rounded, other);
}
