/**
 * @file The global gradient norm from its leaves, and the clip coefficient.
 *
 * The leaves are the kernel's sums of squares over 4096 elements of a flattened parameter group
 * (`squaredNormLeaves`). They are added one by one in ascending order, in double, so that the norm
 * has the same bits however the gradient was divided among shards, tiers and workers.
 */

/**
 * Square root of the sum of all leaves, added in the order given.
 *
 * @param parts leaves of consecutive shards, in canonical order; where `parts` are cut changes
 *   no bit
 * @returns not finite when a leaf is not
 */
export function gradientNorm(parts: Iterable<Float64Array>): number {
  let sum = 0;
  for (const leaves of parts) {
    for (const leaf of leaves) sum += leaf;
  }
  return Math.sqrt(sum);
}

/**
 * Factor that brings a gradient of norm `norm` to at most `maxNorm`:
 * `min(1, maxNorm / (norm + 1e-6))`, as torch.nn.utils.clip_grad_norm_.
 *
 * Computed in double, then rounded to float32; torch computes it in float32 from a float32 norm,
 * so its coefficient may differ in the last bits. `maxNorm` of 0 or below means no clipping, as in
 * Hugging Face's Trainer. NaN stays NaN.
 */
export function clipCoefficient(norm: number, maxNorm: number): number {
  if (maxNorm <= 0) return 1;
  return Math.fround(Math.min(1, maxNorm / (norm + 1e-6)));
}
