/**
 * @file Argument checks of the portable kernels; the same refusals as native/napi-helpers.h.
 */

type Constructor = new (length: number) => ArrayBufferView;

/** Throws a TypeError unless `value` is a `type`. */
export function checkType(name: string, value: ArrayBufferView, type: Constructor): void {
  if (!(value instanceof type)) throw new TypeError(`${name} must be a ${type.name}`);
}

/** Throws a RangeError unless `actual` equals `expected` elements. */
export function checkLength(name: string, actual: number, expected: number): void {
  if (actual !== expected) {
    throw new RangeError(`${name} has ${actual} elements where ${expected} are needed`);
  }
}

/** The bit patterns of `values`, in the same memory. */
export function bitsOf(values: Float32Array): Uint32Array {
  return new Uint32Array(values.buffer, values.byteOffset, values.length);
}
