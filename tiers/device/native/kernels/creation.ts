/**
 * @file OneHot and Range (native/rows.cc).
 */
import * as tf from '@tensorflow/tfjs-core';
import { kernelIdOf } from '../kernel-id.js';
import { nativeDtype } from '../native-dtype.js';
import { registerNative } from '../register-kernel.js';
import { withDtype } from './cast.js';

const ONE_HOT = { float32: 'oneHotFloat', int32: 'oneHotInt', bool: 'oneHotBool' } as const;
const RANGE = { float32: 'rangeFloat', int32: 'rangeInt', bool: 'rangeBool' } as const;

/** tfjs's rules for a range's elements: how many, and how far apart. */
function rangeOf(start: number, stop: number, step: number): { count: number; step: number } {
  const empty = start === stop || (start < stop && step < 0) || (stop < start && step > 1);
  if (empty) return { count: 0, step };
  // A step of 1 is also what "not given" looks like: it then goes down.
  const count = Math.abs(Math.ceil((stop - start) / step));
  return { count, step: stop < start && step === 1 ? -1 : step };
}

export function registerCreation(): void {
  registerNative(tf.OneHot, ({ inputs, attrs, backend }) => {
    const indices = inputs['indices']!;
    const { depth, onValue, offValue, dtype } = attrs as unknown as tf.OneHotAttrs;
    const type = nativeDtype(dtype);
    const count = tf.util.sizeFromShape(indices.shape);
    const out = backend.makeOutput([...indices.shape, depth], type);
    if (count * depth === 0) return out;
    withDtype(backend, indices, 'int32', ($indices) => {
      const args = [backend.offsetOf($indices), backend.offsetOf(out), count, depth];
      backend.launch(kernelIdOf(ONE_HOT[type]), [...args, onValue, offValue]);
    });
    return out;
  });
  registerNative(tf.Range, ({ attrs, backend }) => {
    const { start, stop, step, dtype } = attrs as unknown as tf.RangeAttrs;
    const type = nativeDtype(dtype);
    const range = rangeOf(start, stop, step);
    const out = backend.makeOutput([range.count], type);
    if (range.count === 0) return out;
    const args = [backend.offsetOf(out), range.count, start, range.step];
    backend.launch(kernelIdOf(RANGE[type]), args);
    return out;
  });
}
