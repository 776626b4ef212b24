/**
 * @file What the C++ addon and its portable TypeScript twin both offer. Same names, same bits.
 *
 * Every function is synchronous, allocates nothing, checks its arguments and throws a plain
 * `TypeError`/`RangeError` for misuse (a bug of the caller). Buffers are typed-array views, as a
 * rule over SharedArrayBuffers; views of one call must not overlap unless a function says so.
 */

/** Instruction sets with their own kernels. `portable` is scalar C++ with `std::fma`. */
export type Isa = 'avx512' | 'avx2' | 'neon' | 'portable';

/**
 * Scalars of one AdamW update, each computed in double and then rounded to float32 by the kernel:
 *
 *   g' = g * gradScale                                     (skipped when gradScale is 1)
 *   exp_avg, exp_avg_sq, param: in torch's rounding order (docs/ARCHITECTURE.md, "AdamW")
 */
export interface AdamwScalars {
  /** Learning rate of this step, after schedule and group factor. */
  readonly learningRate: number;
  readonly beta1: number;
  readonly beta2: number;
  readonly epsilon: number;
  /** Decoupled weight decay; 0 on norms and biases. */
  readonly weightDecay: number;
  /** Optimizer step, one-based. */
  readonly step: number;
  /** Factor on the gradient: the clip coefficient, or 1. */
  readonly gradScale: number;
}

/** Numeric kernels: elementwise, single-threaded, bit-identical on every ISA and in TypeScript. */
export interface Kernels {
  /** One AdamW update of `param`, `expAvg`, `expAvgSq` in place; `grad` is read only. Equal lengths. */
  adamw(
    param: Float32Array,
    grad: Float32Array,
    expAvg: Float32Array,
    expAvgSq: Float32Array,
    scalars: AdamwScalars,
  ): void;
  /** The same with the split master: joins `param` (bf16 bits) and `masterLo`, updates, splits. */
  adamwSplit(
    param: Uint16Array,
    masterLo: Uint16Array,
    grad: Float32Array,
    expAvg: Float32Array,
    expAvgSq: Float32Array,
    scalars: AdamwScalars,
  ): void;
  /** Splits float32 masters: `param = (bits + 0x8000) >>> 16`, `masterLo` = low 16 bits; NaN becomes 0x7FC00000 first. */
  splitMaster(master: Float32Array, param: Uint16Array, masterLo: Uint16Array): void;
  /** Joins them again, exactly: `bits = (param << 16) + int16(masterLo)` mod 2^32. */
  joinMaster(param: Uint16Array, masterLo: Uint16Array, master: Float32Array): void;
  bf16ToF32(source: Uint16Array, target: Float32Array): void;
  /** Round to nearest even; NaN stays NaN (quieted). */
  f32ToBf16(source: Float32Array, target: Uint16Array): void;
  f16ToF32(source: Uint16Array, target: Float32Array): void;
  /** Round to nearest even; overflow becomes infinity; NaN stays NaN (quieted). */
  f32ToF16(source: Float32Array, target: Uint16Array): void;
  /** `target[i] += source[i]` in float32. */
  accumulate(target: Float32Array, source: Float32Array): void;
  /**
   * Sum of squares of each leaf of 4096 elements (the last may be shorter), in double: 16 lanes
   * (element i mod 16 within the leaf), each lane ascending by `lane += x * x` (x widened to
   * double; product and sum each rounded, no fma), then lanes 0..15 added ascending from 0.
   */
  squaredNormLeaves(values: Float32Array, leaves: Float64Array): void;
  /** CRC-32C (Castagnoli) of `bytes`, continuing from `seed` (0 to start). Unsigned 32-bit. */
  crc32c(bytes: Uint8Array, seed?: number): number;
}

/** Names of `Kernels`, to compare the addon's exports with. */
export const KERNEL_NAMES = [
  'adamw',
  'adamwSplit',
  'splitMaster',
  'joinMaster',
  'bf16ToF32',
  'f32ToBf16',
  'f16ToF32',
  'f32ToF16',
  'accumulate',
  'squaredNormLeaves',
  'crc32c',
] as const satisfies readonly (keyof Kernels)[];
