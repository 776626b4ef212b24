/**
 * @file Strided layouts, merged to as few dimensions as they have: how kernels walk tensors.
 *
 * A dimension of length 1 is left out; two neighbours merge where every operand walks them as one.
 * So equal shapes become one dimension, `[N, C]` with `[C]` two.
 */

/** One dimension: its length and, for each operand, its stride in elements (0: broadcast). */
export interface WalkDim {
  readonly length: number;
  readonly strides: readonly number[];
}

/** Row-major strides, in elements. */
export function rowMajorStrides(shape: readonly number[]): number[] {
  const strides = new Array<number>(shape.length).fill(1);
  for (let k = shape.length - 2; k >= 0; k--) strides[k] = strides[k + 1]! * shape[k + 1]!;
  return strides;
}

/** Strides with which a tensor of `shape` is walked as if it had `outShape`. */
export function broadcastStrides(shape: readonly number[], outShape: readonly number[]): number[] {
  const strides = rowMajorStrides(shape);
  const missing = outShape.length - shape.length;
  return outShape.map((_, k) => {
    const own = k - missing;
    return own < 0 || shape[own] === 1 ? 0 : strides[own]!;
  });
}

/** The same walk with fewer dimensions; at least one, of length 1 for a single element. */
export function mergeDims(dims: readonly WalkDim[]): WalkDim[] {
  const merged: WalkDim[] = [];
  for (const dim of dims) {
    if (dim.length === 1) continue;
    const outer = merged.at(-1);
    const walksOn = outer?.strides.every((stride, k) => stride === dim.strides[k]! * dim.length);
    if (outer !== undefined && walksOn === true) {
      merged[merged.length - 1] = { length: outer.length * dim.length, strides: dim.strides };
    } else {
      merged.push(dim);
    }
  }
  if (merged.length > 0) return merged;
  return [{ length: 1, strides: (dims[0]?.strides ?? []).map(() => 1) }];
}
