/**
 * @file Frees a temporary as soon as the next one has been computed from it. Within a coarse
 * operation `tf.tidy` would keep all of them to the operation's end.
 */
import type { Tensor } from '@tensorflow/tfjs-core';

/** `next(x)`, a new tensor; disposes `x`. */
export function consume<T extends Tensor>(x: Tensor, next: (x: Tensor) => T): T {
  const y = next(x);
  x.dispose();
  return y;
}
