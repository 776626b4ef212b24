/**
 * @file Copies between strided layouts by the kernel `copyStrided` (native/movement.cc).
 */
import type { TensorInfo } from '@tensorflow/tfjs-core';
import { kernelIdOf } from '../kernel-id.js';
import type { NativeBackend } from '../native-backend.js';
import { dtypeBytes, nativeDtype } from '../native-dtype.js';
import { mergeDims, type WalkDim } from './layout.js';

/** Most dimensions of one launch. */
const MAX_RANK = 6;

/** Dimensions in the target's order, strides `[from, to]`; where the first element lies. */
export interface CopyBox {
  readonly dims: readonly WalkDim[];
  /** In elements from the start of the source. */
  readonly from?: number;
  /** In elements from the start of the target. */
  readonly to?: number;
}

/** Copies the elements of `box` from `source` to `target`, of the same element type. */
export function launchCopy(
  backend: NativeBackend,
  source: TensorInfo,
  target: TensorInfo,
  box: CopyBox,
): void {
  if (box.dims.some(({ length }) => length === 0)) return;
  const dims = box.dims.length === 0 ? [{ length: 1, strides: [1, 1] }] : mergeDims(box.dims);
  const { from = 0, to = 0 } = box;
  if (dims.length > MAX_RANK) {
    const [outer, ...inner] = dims;
    for (let i = 0; i < outer!.length; i++) {
      launchCopy(backend, source, target, {
        dims: inner,
        from: from + i * outer!.strides[0]!,
        to: to + i * outer!.strides[1]!,
      });
    }
    return;
  }
  const bytes = dtypeBytes(nativeDtype(target.dtype));
  backend.launch(kernelIdOf('copyStrided'), [
    backend.offsetOf(source) + from * bytes,
    backend.offsetOf(target) + to * bytes,
    bytes,
    dims.length,
    ...dims.map(({ length }) => length),
    ...dims.map(({ strides }) => strides[0]!),
    ...dims.map(({ strides }) => strides[1]!),
  ]);
}
