/**
 * @file What every device asserts of the operands of a transfer.
 */
import * as tf from '@tensorflow/tfjs-core';
import type { Tensor } from '@tensorflow/tfjs-core';
import { assert } from '../../core/errors.js';

/** That `length` values fill a tensor of `shape`. */
export function assertFills(length: number, shape: readonly number[]): void {
  assert(length === tf.util.sizeFromShape([...shape]), 'the data fill the shape', {
    length,
    shape: `[${shape.join(', ')}]`,
  });
}

/** That elements `offset … offset + length` of the tensor can be downloaded. */
export function assertDownload(tensor: Tensor, offset: number, length: number): void {
  assert(tensor.dtype === 'float32' && !tensor.isDisposed, 'a live float32 tensor is downloaded');
  assert(offset >= 0 && offset + length <= tensor.size, 'the range lies in the tensor', {
    offset,
    length,
    tensorLength: tensor.size,
  });
}
