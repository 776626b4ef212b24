/**
 * @file Causal attention and its gradients in float64, written out one query at a time.
 */
import type { AttentionAttrs } from '../../tiers/device/native/kernels/fused-names.js';

/** Operands and results by sequence, head, token and element: [B, heads, T, D] as one array. */
export interface AttentionPlanes {
  readonly q: Float64Array;
  readonly k: Float64Array;
  readonly v: Float64Array;
}

export interface AttentionReference extends AttentionPlanes {
  readonly output: Float64Array;
  /** [B, H, T] */
  readonly lse: Float64Array;
  readonly dq: Float64Array;
  readonly dk: Float64Array;
  readonly dv: Float64Array;
}

/** Everything that attention computes for `planes`, given the gradient of its output. */
export function attentionReference(
  attrs: AttentionAttrs,
  { q, k, v }: AttentionPlanes,
  dOutput: Float64Array,
  documents: Int32Array | undefined,
): AttentionReference {
  const { batch, length, heads, keyHeads, width } = attrs;
  const output = new Float64Array(q.length);
  const lse = new Float64Array(batch * heads * length);
  const [dq, dk, dv] = [q, k, v].map((x) => new Float64Array(x.length)) as [
    Float64Array,
    Float64Array,
    Float64Array,
  ];
  const scale = 1 / Math.sqrt(width);
  for (let plane = 0; plane < batch * heads; plane += 1) {
    const sequence = Math.floor(plane / heads);
    const keyHead = Math.floor((plane % heads) / (heads / keyHeads));
    const keyPlane = sequence * keyHeads + keyHead;
    for (let i = 0; i < length; i += 1) {
      const query = (plane * length + i) * width;
      const seen = Array.from({ length: i + 1 }, (_, j) => j).filter(
        (j) =>
          documents === undefined ||
          documents[sequence * length + j] === documents[sequence * length + i],
      );
      const rows = seen.map((j) => (keyPlane * length + j) * width);
      const scores = rows.map((row) => scale * dot(q, query, k, row, width));
      const largest = Math.max(...scores);
      const total = scores.reduce((sum, score) => sum + Math.exp(score - largest), 0);
      lse[plane * length + i] = largest + Math.log(total);
      const weights = scores.map((score) => Math.exp(score - largest) / total);
      rows.forEach((row, n) => add(output, query, v, row, weights[n]!, width));
      const slopes = rows.map((row) => dot(dOutput, query, v, row, width));
      const mean = slopes.reduce((sum, slope, n) => sum + slope * weights[n]!, 0);
      rows.forEach((row, n) => {
        const dScore = scale * weights[n]! * (slopes[n]! - mean);
        add(dq, query, k, row, dScore, width);
        add(dk, row, q, query, dScore, width);
        add(dv, row, dOutput, query, weights[n]!, width);
      });
    }
  }
  return { q, k, v, output, lse, dq, dk, dv };
}

function dot(a: Float64Array, at: number, b: Float64Array, from: number, width: number): number {
  let sum = 0;
  for (let d = 0; d < width; d += 1) sum += a[at + d]! * b[from + d]!;
  return sum;
}

function add(
  target: Float64Array,
  at: number,
  source: Float64Array,
  from: number,
  factor: number,
  width: number,
): void {
  for (let d = 0; d < width; d += 1) target[at + d]! += factor * source[from + d]!;
}

/** Element `(sequence, head, token, d)` of a [B, heads, T, D] operand, wherever it lies. */
type Position = (sequence: number, head: number, token: number, d: number) => number;

/** Where the operand's elements lie in the tensor of `layout`; `column` is its first column. */
export function positions(
  { layout, length, heads, keyHeads, width }: AttentionAttrs,
  own: number,
  column: number,
): Position {
  if (layout === 'planes') return (b, h, t, d) => ((b * own + h) * length + t) * width + d;
  const rowWidth = layout === 'joined' ? (heads + 2 * keyHeads) * width : own * width;
  return (b, h, t, d) => (b * length + t) * rowWidth + column + h * width + d;
}

/** Copies a [B, own, T, D] operand out of a tensor. */
export function planesOf(
  attrs: AttentionAttrs,
  own: number,
  at: Position,
  values: Float32Array,
): Float64Array {
  const { batch, length, width } = attrs;
  const planes = new Float64Array(batch * own * length * width);
  let index = 0;
  for (let b = 0; b < batch; b += 1) {
    for (let h = 0; h < own; h += 1) {
      for (let t = 0; t < length; t += 1) {
        for (let d = 0; d < width; d += 1) planes[index++] = values[at(b, h, t, d)]!;
      }
    }
  }
  return planes;
}
