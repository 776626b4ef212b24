/**
 * @file Bit patterns for tests of elementwise kernels.
 */

/** The float32 with these bits. */
export function floatsOfBits(bits: ArrayLike<number>): Float32Array {
  return new Float32Array(Uint32Array.from(bits).buffer);
}

/** The bits of `values`. */
export function bitsOfFloats(values: Float32Array): Uint32Array {
  return new Uint32Array(values.slice().buffer);
}

/** Edge patterns: zeros, subnormals, powers of two and their neighbours, infinities, NaNs. */
export function edgeBits(): number[] {
  const magnitudes = [0, 1, 2, 0x7f_ffff, 0x80_0000, 0x80_0001, 0x7f7f_ffff, 0x7f80_0000];
  magnitudes.push(0x7f80_0001, 0x7fbf_ffff, 0x7fc0_0000, 0x7fff_ffff);
  for (let exponent = 1; exponent < 255; exponent++) {
    for (const mantissa of [0, 1, 0x0fff, 0x1000, 0x1001, 0x7fff, 0x8000, 0x8001, 0x7f_ffff]) {
      magnitudes.push((exponent << 23) | mantissa, (exponent << 23) | 0x2000 | mantissa);
    }
  }
  return magnitudes.flatMap((bits) => [bits, (bits | 0x8000_0000) >>> 0]);
}

/** Every `stride`-th pattern of all 2^32, and the edges. An odd stride varies all bits. */
export function sampledBits(stride: number): Uint32Array {
  const edges = edgeBits();
  const count = Math.ceil(2 ** 32 / stride);
  const bits = new Uint32Array(count + edges.length);
  for (let i = 0; i < count; i++) bits[i] = i * stride;
  bits.set(edges, count);
  return bits;
}
