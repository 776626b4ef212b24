/**
 * @file Threefry-2x32 with 20 rounds: a random function of (key, counter), so that any element of a
 * random tensor can be computed alone (Salmon et al. 2011, "Parallel random numbers: as easy as
 * 1, 2, 3"; test/model/threefry.test.ts holds the authors' known answers).
 */

/** Skein's key schedule constant. */
const PARITY = 0x1bd11bda;

/** Rotations of eight rounds; they repeat. */
const ROTATIONS = [13, 15, 26, 6, 17, 29, 16, 24] as const;

const ROUNDS = 20;

/**
 * Writes two random words for a counter.
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
  const schedule = [key[0] | 0, key[1] | 0, (PARITY ^ key[0] ^ key[1]) | 0] as const;
  let x0 = (counterLow + schedule[0]) | 0;
  let x1 = (counterHigh + schedule[1]) | 0;
  for (let round = 0; round < ROUNDS; round += 1) {
    const rotation = ROTATIONS[round % 8]!;
    x0 = (x0 + x1) | 0;
    x1 = ((x1 << rotation) | (x1 >>> (32 - rotation))) ^ x0;
    if (round % 4 === 3) {
      const injection = (round + 1) / 4;
      x0 = (x0 + schedule[injection % 3]!) | 0;
      x1 = (x1 + schedule[(injection + 1) % 3]! + injection) | 0;
    }
  }
  out[0] = x0;
  out[1] = x1;
}
