/**
 * @file The exact split of float32 masters into bf16 and low bits; twin of native/split-master.cc.
 */
import type { Kernels } from '../native-binding.js';
import { bitsOf, checkLength, checkType } from './check-arguments.js';

/** Bits of the float32 that `param` and `low` (16 bits each) stand for. */
export function joinBits(param: number, low: number): number {
  return ((param << 16) + ((low << 16) >> 16)) >>> 0;
}

/** `bits`, with NaN replaced by the one NaN that the rounding of `splitHigh` leaves alone. */
export function splittableBits(bits: number): number {
  return (bits & 0x7fff_ffff) > 0x7f80_0000 ? 0x7fc0_0000 : bits;
}

/** The bf16 half: nearest, ties away from zero. */
export function splitHigh(bits: number): number {
  return (bits + 0x8000) >>> 16;
}

/** See `Kernels.splitMaster`. */
export const splitMaster: Kernels['splitMaster'] = (master, param, masterLo) => {
  checkType('master', master, Float32Array);
  checkType('param', param, Uint16Array);
  checkType('masterLo', masterLo, Uint16Array);
  checkLength('param', param.length, master.length);
  checkLength('masterLo', masterLo.length, master.length);
  const source = bitsOf(master);
  for (let i = 0; i < source.length; i++) {
    const bits = splittableBits(source[i]!);
    param[i] = splitHigh(bits);
    masterLo[i] = bits;
  }
};

/** See `Kernels.joinMaster`. */
export const joinMaster: Kernels['joinMaster'] = (param, masterLo, master) => {
  checkType('param', param, Uint16Array);
  checkType('masterLo', masterLo, Uint16Array);
  checkType('master', master, Float32Array);
  checkLength('masterLo', masterLo.length, param.length);
  checkLength('master', master.length, param.length);
  const target = bitsOf(master);
  for (let i = 0; i < target.length; i++) target[i] = joinBits(param[i]!, masterLo[i]!);
};
