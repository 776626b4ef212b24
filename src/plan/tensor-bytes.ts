/**
 * @file What a float32 tensor costs on a device, as plans count it.
 *
 * The native device charges whole cache lines, the cpu device exact bytes; plans count the former,
 * so that a bound holds on every device.
 */
import { alignUp } from '../../core/bytes.js';

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
