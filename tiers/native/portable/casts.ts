/**
 * @file Conversions between float32 and the 16-bit formats; twin of native/casts.cc.
 *
 * Bit patterns only: a NaN that passes through a JavaScript number may lose its payload.
 */
import type { Kernels } from '../native-binding.js';
import { bitsOf, checkLength, checkType } from './check-arguments.js';

const INFINITY_BITS = 0x7f80_0000;
/** Difference of the exponent biases of float32 (127) and float16 (15), in place. */
const REBIAS = 112 << 23;
/** Float32 bits of 2^-14, the smallest normal float16. */
const F16_MIN_NORMAL = 0x3880_0000;
/** Float32 bits of 65520: from here on the nearest float16 is infinity. */
const F16_OVERFLOW = 0x477f_f000;

function checkPair(source: ArrayBufferView, target: ArrayBufferView, widens: boolean): void {
  checkType('source', source, widens ? Uint16Array : Float32Array);
  checkType('target', target, widens ? Float32Array : Uint16Array);
}

/** See `Kernels.bf16ToF32`. */
export const bf16ToF32: Kernels['bf16ToF32'] = (source, target) => {
  checkPair(source, target, true);
  checkLength('target', target.length, source.length);
  const bits = bitsOf(target);
  for (let i = 0; i < source.length; i++) bits[i] = source[i]! << 16;
};

/** See `Kernels.f32ToBf16`. */
export const f32ToBf16: Kernels['f32ToBf16'] = (source, target) => {
  checkPair(source, target, false);
  checkLength('target', target.length, source.length);
  const patterns = bitsOf(source);
  for (let i = 0; i < patterns.length; i++) {
    const bits = patterns[i]!;
    const isNan = (bits & 0x7fff_ffff) > INFINITY_BITS;
    target[i] = isNan ? (bits >>> 16) | 0x40 : (bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16;
  }
};

/** See `Kernels.f16ToF32`. */
export const f16ToF32: Kernels['f16ToF32'] = (source, target) => {
  checkPair(source, target, true);
  checkLength('target', target.length, source.length);
  const bits = bitsOf(target);
  for (let i = 0; i < source.length; i++) bits[i] = widenF16(source[i]!);
};

/** See `Kernels.f32ToF16`. */
export const f32ToF16: Kernels['f32ToF16'] = (source, target) => {
  checkPair(source, target, false);
  checkLength('target', target.length, source.length);
  const patterns = bitsOf(source);
  for (let i = 0; i < patterns.length; i++) target[i] = narrowF16(patterns[i]!);
};

function widenF16(half: number): number {
  const sign = (half & 0x8000) << 16;
  const magnitude = half & 0x7fff;
  if (magnitude > 0x7c00) return sign | INFINITY_BITS | 0x40_0000 | (magnitude << 13);
  if (magnitude === 0x7c00) return sign | INFINITY_BITS;
  if (magnitude >= 0x400) return sign | ((magnitude << 13) + REBIAS);
  if (magnitude === 0) return sign;
  // A subnormal: its leading one moves to the exponent's place and counts 1 there.
  const shift = Math.clz32(magnitude) - 21;
  return sign | ((magnitude << (13 + shift)) + REBIAS - (shift << 23));
}

function narrowF16(bits: number): number {
  const sign = (bits >>> 16) & 0x8000;
  const magnitude = bits & 0x7fff_ffff;
  if (magnitude > INFINITY_BITS) return sign | 0x7e00 | ((magnitude >>> 13) & 0x3ff);
  if (magnitude >= F16_OVERFLOW) return sign | 0x7c00;
  if (magnitude >= F16_MIN_NORMAL) {
    return sign | ((magnitude - REBIAS + 0xfff + ((magnitude >>> 13) & 1)) >>> 13);
  }
  // Below: count units of 2^-24, rounding the bits shifted out to nearest even.
  const exponent = magnitude >>> 23;
  const shift = 126 - exponent;
  if (shift > 24) return sign;
  const mantissa = (magnitude & 0x7f_ffff) | 0x80_0000;
  const units = mantissa >>> shift;
  const rest = mantissa & ((1 << shift) - 1);
  const half = 1 << (shift - 1);
  const up = rest > half || (rest === half && (units & 1) === 1) ? 1 : 0;
  return sign | (units + up);
}
