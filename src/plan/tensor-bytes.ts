/**
 * @file What a float32 tensor costs on a device, as plans count it.
 *
 * The native device charges whole cache lines, the cpu device exact bytes; plans count the former,
 * so that a bound holds on every device.
 */
import { alignUp } from '../../core/bytes.js';
import type { ComputeDtype } from '../../core/types.js';

/** `TENSOR_ALIGNMENT` of tiers/device/native/tensor-arena.ts. */
const GRANULE_BYTES = 64;

/** Bytes that `bytes` of elements are charged at most. */
export function chargedBytes(bytes: number): number {
  return alignUp(bytes, GRANULE_BYTES);
}

/** Bytes that a float32 tensor of `length` elements is charged at most. */
export function tensorBytes(length: number): number {
  return chargedBytes(length * 4);
}

/**
 * Whether a parameter that is loaded whole stays bfloat16 on the device: a matrix, which products
 * read as it is. Norms and biases, which other kernels read, are widened on the way.
 */
export function keepsBfloat16(
  shape: readonly number[],
  dtype: ComputeDtype,
  bf16Operands: boolean,
): boolean {
  return bf16Operands && dtype === 'bfloat16' && shape.length === 2;
}
