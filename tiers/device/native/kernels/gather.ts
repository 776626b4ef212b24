/**
 * @file GatherV2 and UnsortedSegmentSum (native/rows.cc).
 *
 * Indices are on the device and the launch does not wait for them, so a wrong one cannot be
 * refused: it gives NaN (float32) or 0. tfjs's cpu backend throws; its GPU backends read what they
 * find.
 */
import * as tf from '@tensorflow/tfjs-core';
import type { TensorInfo } from '@tensorflow/tfjs-core';
import { SpillwayError } from '../../../../core/errors.js';
import { kernelIdOf } from '../kernel-id.js';
import { dtypeBytes, nativeDtype } from '../native-dtype.js';
import { registerNative } from '../register-kernel.js';
import { withDtype } from './cast.js';

/** Bytes of it are NaN as float32. */
const NAN_BYTE = 255;

export function registerGather(): void {
  registerNative(tf.GatherV2, ({ inputs, attrs, backend }) => {
    const { x, indices } = inputs as Record<'x' | 'indices', TensorInfo>;
    const { axis, batchDims = 0 } = attrs as unknown as { axis: number; batchDims?: number };
    const $axis = tf.util.parseAxisParam(axis, x.shape)[0]!;
    const info = tf.backend_util.segment_util.collectGatherOpShapeInfo(
      x,
      indices,
      $axis,
      batchDims,
    );
    const dtype = nativeDtype(x.dtype);
    const out = backend.makeOutput(info.outputShape, dtype);
    if (tf.util.sizeFromShape(info.outputShape) === 0) return out;
    withDtype(backend, indices, 'int32', ($indices) => {
      backend.launch(kernelIdOf('gatherRows'), [
        backend.offsetOf(x),
        backend.offsetOf($indices),
        backend.offsetOf(out),
        info.batchSize,
        info.outerSize,
        tf.util.sizeFromShape(indices.shape) / info.batchSize,
        info.dimSize,
        info.sliceSize * dtypeBytes(dtype),
        dtype === 'float32' ? NAN_BYTE : 0,
      ]);
    });
    return out;
  });
  registerNative(tf.UnsortedSegmentSum, ({ inputs, attrs, backend }) => {
    const { x, segmentIds } = inputs as Record<'x' | 'segmentIds', TensorInfo>;
    const { numSegments } = attrs as unknown as tf.UnsortedSegmentSumAttrs;
    if (segmentIds.shape.length !== 1 || segmentIds.shape[0] !== x.shape[0]) {
      throw new SpillwayError(
        'BLOCK_INVALID',
        'unsortedSegmentSum takes one segment id per row of x; flatten both',
        { shape: x.shape.map(String), segmentIdsShape: segmentIds.shape.map(String) },
      );
    }
    const rowShape = x.shape.slice(1);
    // tfjs multiplies by a float32 mask.
    return withDtype(backend, x, 'float32', ($x) =>
      withDtype(backend, segmentIds, 'int32', ($ids) => {
        const out = backend.makeOutput([numSegments, ...rowShape], 'float32');
        if (tf.util.sizeFromShape(out.shape) === 0) return out;
        backend.launch(kernelIdOf('segmentSumFloat'), [
          backend.offsetOf($x),
          backend.offsetOf($ids),
          backend.offsetOf(out),
          x.shape[0]!,
          tf.util.sizeFromShape(rowShape),
          numSegments,
        ]);
        return out;
      }),
    );
  });
}
