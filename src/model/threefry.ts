/**
 * @file Threefry-2x32 with 20 rounds: a random function of (key, counter), so that any element of a
 * random tensor can be computed alone (Salmon et al. 2011, "Parallel random numbers: as easy as
 * 1, 2, 3"; test/model/threefry.test.ts holds the authors' known answers).
 */

/** Skein's key schedule constant. */
const PARITY = 0x1bd11bda;

/** Rounds come in groups of four, each followed by an injection of the key. */
const GROUPS = 5;

/**
 * Writes two random words for a counter.
 *
 * Rotations are written out: a table of them takes more than twice as long.
 *
 * @param key two words
 * @param out receives two unsigned words; mutated
 */
export function threefry2x32(
  key: readonly [number, number],
  counterLow: number,
  counterHigh: number,
  out: Uint32Array,
): void {
  let [k0, k1] = [key[0] | 0, key[1] | 0];
  let k2 = PARITY ^ k0 ^ k1;
  let x0 = (counterLow + k0) | 0;
  let x1 = (counterHigh + k1) | 0;
  for (let group = 1; group <= GROUPS; group += 1) {
    x0 = (x0 + x1) | 0;
    if (group % 2 === 1) {
      x1 = ((x1 << 13) | (x1 >>> 19)) ^ x0;
      x0 = (x0 + x1) | 0;
      x1 = ((x1 << 15) | (x1 >>> 17)) ^ x0;
      x0 = (x0 + x1) | 0;
      x1 = ((x1 << 26) | (x1 >>> 6)) ^ x0;
      x0 = (x0 + x1) | 0;
      x1 = ((x1 << 6) | (x1 >>> 26)) ^ x0;
    } else {
      x1 = ((x1 << 17) | (x1 >>> 15)) ^ x0;
      x0 = (x0 + x1) | 0;
      x1 = ((x1 << 29) | (x1 >>> 3)) ^ x0;
      x0 = (x0 + x1) | 0;
      x1 = ((x1 << 16) | (x1 >>> 16)) ^ x0;
      x0 = (x0 + x1) | 0;
      x1 = ((x1 << 24) | (x1 >>> 8)) ^ x0;
    }
    const first = k0;
    k0 = k1;
    k1 = k2;
    k2 = first;
    x0 = (x0 + k0) | 0;
    x1 = (x1 + k1 + group) | 0;
  }
  out[0] = x0;
  out[1] = x1;
}
