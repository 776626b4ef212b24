/**
 * @file Select: elements of one tensor or another (native/unary.cc).
 */
import * as tf from '@tensorflow/tfjs-core';
import type { TensorInfo } from '@tensorflow/tfjs-core';
import { kernelIdOf } from '../kernel-id.js';
import { nativeDtype } from '../native-dtype.js';
import { registerNative } from '../register-kernel.js';
import { withDtype } from './cast.js';

export function registerSelect(): void {
  registerNative(tf.Select, ({ inputs, backend }) => {
    const { condition, t, e } = inputs as Record<'condition' | 't' | 'e', TensorInfo>;
    const dtype = nativeDtype(tf.upcastType(t.dtype, e.dtype));
    const out = backend.makeOutput(t.shape, dtype);
    const size = tf.util.sizeFromShape(t.shape);
    const count = tf.util.sizeFromShape(condition.shape);
    tf.util.assert(
      tf.util.arraysEqual(t.shape, e.shape) && (size === 0 || size % count === 0),
      () =>
        `Select: shapes [${condition.shape.join()}], [${t.shape.join()}] and ` +
        `[${e.shape.join()}] do not fit`,
    );
    if (size === 0) return out;
    withDtype(backend, condition, 'bool', ($condition) =>
      withDtype(backend, t, dtype, ($t) =>
        withDtype(backend, e, dtype, ($e) => {
          backend.launch(kernelIdOf(dtype === 'bool' ? 'selectBool' : 'selectWord'), [
            backend.offsetOf($condition),
            backend.offsetOf($t),
            backend.offsetOf($e),
            backend.offsetOf(out),
            count,
            size / count,
          ]);
        }),
      ),
    );
    return out;
  });
}
