// Goal: CRC-32C by RFC 3720's vectors, by its definition, and with one result everywhere.
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

import { implementationRows } from './implementations.js';

/** Bit by bit, from the definition. */
function reference(bytes: Uint8Array): number {
  let crc = 0xffff_ffff;
  for (const byte of bytes) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit++) crc = (crc >>> 1) ^ ((crc & 1) === 1 ? 0x82f6_3b78 : 0);
  }
  return ~crc >>> 0;
}

const ascending = (count: number) => Uint8Array.from({ length: count }, (_, i) => i);
const noise = Uint8Array.from({ length: 40_000 }, (_, i) => Math.imul(i, 2_654_435_761) >>> 24);

/** RFC 3720, appendix B.4, and the usual check value. */
const vectors: [string, Uint8Array, number][] = [
  ['32 zero bytes', new Uint8Array(32), 0x8a91_36aa],
  ['32 bytes of 0xFF', new Uint8Array(32).fill(0xff), 0x62a8_ab43],
  ['32 ascending bytes', ascending(32), 0x46dd_794e],
  ['32 descending bytes', ascending(32).reverse(), 0x113f_db5c],
  ['the digits 1 to 9', new TextEncoder().encode('123456789'), 0xe306_9283],
  ['no bytes', new Uint8Array(0), 0],
];

describe.each(implementationRows)('crc32c, %s', (_, each) => {
  test.each(vectors)('%s', (_name, bytes, expected) => {
    expect(each.run((k) => k.crc32c(bytes))).toBe(expected);
  });

  test('any range of bytes equals the bitwise definition', () => {
    fc.assert(
      fc.property(fc.nat(20), fc.nat(9000), (offset, length) => {
        const bytes = noise.subarray(offset, offset + length);
        expect(each.run((k) => k.crc32c(bytes))).toBe(reference(bytes));
      }),
      { numRuns: 40 },
    );
  });

  test('a checksum continues from a seed', () => {
    fc.assert(
      fc.property(fc.nat(noise.length), (cut) => {
        each.run((k) => {
          const first = k.crc32c(noise.subarray(0, cut));
          expect(k.crc32c(noise.subarray(cut), first)).toBe(k.crc32c(noise));
        });
      }),
      { numRuns: 40 },
    );
  });

  test('anything but bytes and a number is refused', () => {
    each.run((k) => {
      expect(() => k.crc32c(new Uint16Array(2) as unknown as Uint8Array)).toThrow(TypeError);
      expect(() => k.crc32c(noise, 'x' as unknown as number)).toThrow(TypeError);
    });
  });
});
