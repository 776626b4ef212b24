/**
 * @file Arguments of the C++ kernels `gemm` and `gemmInt` (native/gemm.cc, native/gemm-int.cc).
 */

/** How an operand's elements are stored; numbers of `GemmType` in native/gemm.h. */
export const GEMM_TYPE = { float32: 0, bfloat16: 1 } as const;

/** Numbers of `GemmActivation` in native/gemm.h. */
export const GEMM_ACTIVATION = { none: 0, relu: 1 } as const;

/** One operand: row-major, element (i, j) of matrix `e` at `e * batchStride + i * leading + j`. */
export interface GemmOperand {
  /** Byte offset of its first element. */
  readonly offset: number;
  /** Default float32; `gemmInt` takes int32 only and ignores it. */
  readonly type?: keyof typeof GEMM_TYPE;
  /** Whether the matrix is stored as its transpose. */
  readonly transposed: boolean;
  /** Elements from one stored row to the next. */
  readonly leading: number;
  /** Elements from one matrix of the batch to the next; 0 shares one. */
  readonly batchStride: number;
}

/** C = op(A)·op(B), `batch` times; op(A) is m × k, op(B) is k × n. C is contiguous by default. */
export interface GemmCall {
  readonly m: number;
  readonly n: number;
  readonly k: number;
  readonly batch: number;
  readonly a: GemmOperand;
  readonly b: GemmOperand;
  readonly c: { readonly offset: number; readonly leading?: number; readonly batchStride?: number };
  /** Byte offset of n floats that are added to each row. */
  readonly biasOffset?: number;
  readonly activation?: keyof typeof GEMM_ACTIVATION;
}

/** Arguments of `gemm`. */
export function gemmArgs({ m, n, k, batch, a, b, c, biasOffset, activation }: GemmCall): number[] {
  const operand = (x: GemmOperand): number[] => [
    GEMM_TYPE[x.type ?? 'float32'],
    Number(x.transposed),
    x.leading,
    x.batchStride,
  ];
  return [
    ...[a.offset, b.offset, c.offset, m, n, k, batch],
    ...operand(a),
    ...operand(b),
    ...[c.leading ?? n, c.batchStride ?? m * n],
    biasOffset ?? -1,
    GEMM_ACTIVATION[activation ?? 'none'],
  ];
}

/** Arguments of `gemmInt`, which has neither bias nor activation. */
export function gemmIntArgs({ m, n, k, batch, a, b, c }: GemmCall): number[] {
  const operand = (x: GemmOperand): number[] => [Number(x.transposed), x.leading, x.batchStride];
  return [a.offset, b.offset, c.offset, m, n, k, batch, ...operand(a), ...operand(b)];
}
