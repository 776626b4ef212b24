/**
 * @file Element types of the native device and their arrays, laid out as tfjs lays them out.
 */
import { SpillwayError } from '../../../core/errors.js';

/** Bool is one byte, 0 or 1. */
export type NativeDtype = 'float32' | 'int32' | 'bool';

/** The array in which tfjs keeps elements of each type. */
export type NativeArray = Float32Array | Int32Array | Uint8Array;

/** @throws BLOCK_INVALID for strings and complex numbers, which do not run on the device */
export function nativeDtype(dtype: string): NativeDtype {
  if (dtype === 'float32' || dtype === 'int32' || dtype === 'bool') return dtype;
  throw new SpillwayError(
    'BLOCK_INVALID',
    `tensors of type ${dtype} do not run on the native device; use float32, int32 or bool`,
    { dtype },
  );
}

/** Bytes of one element. */
export function dtypeBytes(dtype: NativeDtype): 1 | 4 {
  return dtype === 'bool' ? 1 : 4;
}

/** A zeroed array of `length` elements. */
export function nativeArray(dtype: NativeDtype, length: number): NativeArray {
  switch (dtype) {
    case 'float32':
      return new Float32Array(length);
    case 'int32':
      return new Int32Array(length);
    case 'bool':
      return new Uint8Array(length);
  }
}
