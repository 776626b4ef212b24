/**
 * @file Linear map of rows: y = x·W + b, with W as GPT-2's Conv1D ([in, out]) or as a Linear
 * ([out, in]) stores it.
 *
 * As tfjs operations, the addition of the bias would save the product it is added to. This saves x
 * and W only, and transposes neither: all products use the kernel's transpose flags.
 */
import * as tf from '@tensorflow/tfjs-core';
import type { Tensor, Tensor2D } from '@tensorflow/tfjs-core';
import { defineOp } from '../../../tiers/device/custom-op.js';
import { runKernel } from './fused-kernel.js';

/** How the weight is stored. */
export interface LinearLayout {
  /** `in,out`: Conv1D of GPT-2; `out,in`: torch.nn.Linear. */
  readonly weight: 'in,out' | 'out,in';
}

const op = defineOp<LinearLayout>('linear', {
  forward: ([x, weight, bias], { weight: layout }) => {
    const transposeB = layout === 'out,in';
    if (bias === undefined) {
      return { outputs: [tf.matMul(x!, weight!, false, transposeB)], saved: [x!, weight!] };
    }
    // tf.fused.matMul would record a node of its own; the kernel under it is on every backend.
    const attrs = { transposeA: false, transposeB, activation: 'linear' };
    const outputs = runKernel(tf._FusedMatMul, { a: x, b: weight, bias }, attrs);
    return { outputs, saved: [x!, weight!, bias] };
  },
  backward: ([dy], [x, weight, bias], { weight: layout }) => {
    const dx = (): Tensor => tf.matMul(dy!, weight!, false, layout === 'in,out');
    const dWeight = (): Tensor =>
      layout === 'in,out' ? tf.matMul(x!, dy!, true) : tf.matMul(dy!, x!, true);
    return bias === undefined ? [dx, dWeight] : [dx, dWeight, () => tf.sum(dy!, 0)];
  },
});

/**
 * x·W + b.
 *
 * @param x [N, in]
 * @param weight [in, out] or [out, in] as `layout` says
 * @param bias [out], or none
 * @returns [N, out]
 */
export function linear(
  x: Tensor,
  weight: Tensor,
  bias: Tensor | undefined,
  layout: LinearLayout,
): Tensor2D {
  return op(bias === undefined ? [x, weight] : [x, weight, bias], layout)[0] as Tensor2D;
}
