/**
 * @file Identity and Reshape: new tensors over the same memory; nothing is launched.
 */
import * as tf from '@tensorflow/tfjs-core';
import { registerNative } from '../register-kernel.js';

export function registerSharing(): void {
  registerNative(tf.Identity, ({ inputs, backend }) => {
    const x = inputs['x']!;
    return backend.alias(x, x.shape);
  });
  registerNative(tf.Reshape, ({ inputs, attrs, backend }) => {
    const x = inputs['x']!;
    const { shape } = attrs as unknown as tf.ReshapeAttrs;
    const length = tf.util.sizeFromShape(x.shape);
    const $shape = tf.util.inferFromImplicitShape(shape, length);
    tf.util.assert(
      length === tf.util.sizeFromShape($shape),
      () => `a tensor of shape [${x.shape.join()}] cannot be reshaped to [${shape.join()}]`,
    );
    return backend.alias(x, $shape);
  });
}
