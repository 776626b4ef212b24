/**
 * @file Causal attention by the fused kernel (native/fused-attention.cc), whatever the layout of its
 * operands, with rotary positions where they are asked for.
 *
 * Saves the turned queries and keys, the values, the output and the log-sum-exp per query; the
 * weights are computed again in reverse. A rotation is linear, so the gradients of the turned
 * queries and keys are turned back.
 */
import type { Tensor } from '@tensorflow/tfjs-core';
import { defineOp } from '../../../tiers/device/custom-op.js';
import { FUSED, type AttentionAttrs } from '../../../tiers/device/native/kernels/fused-names.js';
import type { Rope } from '../rope.js';
import { hasKernel, runKernel } from './fused-kernel.js';
import { rotaryTable, rotateFused } from './rotary.js';

/** An attention, and its rotary positions; without them nothing is turned. They need layout
 * `rows`. */
export interface FusedAttentionAttrs extends AttentionAttrs {
  readonly rope?: Rope;
  /** [B·T], each 0 … T-1; default 0 … T-1 in every sequence. */
  readonly positions?: Int32Array;
}

/** Queries and keys turned by their positions, or back; values as they are. */
function turned(qkv: readonly Tensor[], attrs: FusedAttentionAttrs, direction: 1 | -1): Tensor[] {
  const { rope, width, heads, keyHeads } = attrs;
  if (rope === undefined) return [...qkv];
  const table = rotaryTable(attrs, rope);
  const length = table.shape[1]!;
  const turn = (x: Tensor, rowsPerPosition: number): Tensor =>
    rotateFused(x, table, { width, length, rowsPerPosition, direction });
  const [q, k, v] = qkv as [Tensor, Tensor, Tensor];
  const result = [turn(q, heads), turn(k, keyHeads), v];
  table.dispose();
  return result;
}

/** Tensors that hold q, k and v: one when they are joined. */
function operandCount(attrs: AttentionAttrs): number {
  return attrs.layout === 'joined' ? 1 : 3;
}

const op = defineOp<FusedAttentionAttrs>('fusedAttention', {
  forward: (inputs, attrs) => {
    const count = operandCount(attrs);
    const documents = inputs[count];
    const operands = turned(inputs.slice(0, count), attrs, 1);
    const [q, k, v] = operands;
    const [output, lse] = runKernel(FUSED.attention, { q, k, v, documents }, attrs);
    const saved = [output!, lse!, ...operands];
    return { outputs: [output!], saved: documents === undefined ? saved : [...saved, documents] };
  },
  backward: ([dy], [output, lse, ...rest], attrs) => {
    const count = operandCount(attrs);
    const [q, k, v] = rest.slice(0, count);
    const documents = rest[count];
    const inputs = { q, k, v, output, lse, dy, documents };
    const gradients = turned(runKernel(FUSED.attentionGrad, inputs, attrs), attrs, -1);
    return documents === undefined ? gradients : [...gradients, null];
  },
});

/** Whether the active backend has it. */
export function hasFusedAttention(): boolean {
  return hasKernel(FUSED.attention);
}

/**
 * Attention of the operands, in the layout that `attrs` says.
 *
 * @param qkv one tensor (layout `joined`) or q, k and v
 * @param documents int32 [B, T]: a query sees only keys of its own document
 */
export function fusedAttention(
  qkv: readonly Tensor[],
  documents: Tensor | undefined,
  attrs: FusedAttentionAttrs,
): Tensor {
  return op(documents === undefined ? qkv : [...qkv, documents], attrs)[0]!;
}
