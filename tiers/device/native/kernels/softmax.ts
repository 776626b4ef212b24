/**
 * @file Softmax and LogSoftmax along the last dimension (native/reduce.cc).
 */
import * as tf from '@tensorflow/tfjs-core';
import type { TensorInfo } from '@tensorflow/tfjs-core';
import { kernelIdOf } from '../kernel-id.js';
import type { NativeBackend } from '../native-backend.js';
import { registerNative } from '../register-kernel.js';
import { withDtype } from './cast.js';

function overRows(
  backend: NativeBackend,
  kernel: string,
  logits: TensorInfo,
  axis: number,
): TensorInfo {
  const rank = logits.shape.length;
  tf.util.assert(
    axis === -1 || axis === rank - 1,
    () => `softmax runs along the last dimension only; rank ${rank}, dimension ${axis}`,
  );
  return withDtype(backend, logits, 'float32', (x) => {
    const out = backend.makeOutput(x.shape, 'float32');
    const length = tf.util.sizeFromShape(x.shape);
    if (length === 0) return out;
    const columns = x.shape[rank - 1]!;
    const args = [backend.offsetOf(x), backend.offsetOf(out), length / columns, columns];
    backend.launch(kernelIdOf(kernel), args);
    return out;
  });
}

export function registerSoftmax(): void {
  registerNative(tf.Softmax, ({ inputs, attrs, backend }) =>
    overRows(backend, 'softmaxFloat', inputs['logits']!, (attrs as unknown as tf.SoftmaxAttrs).dim),
  );
  registerNative(tf.LogSoftmax, ({ inputs, attrs, backend }) =>
    overRows(
      backend,
      'logSoftmaxFloat',
      inputs['logits']!,
      (attrs as unknown as tf.LogSoftmaxAttrs).axis,
    ),
  );
}
