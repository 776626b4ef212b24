/**
 * @file Mutations of a file's bytes: flip, set, insert, delete, duplicate, truncate.
 */
import fc from 'fast-check';

/** Bytes that mean something to JSON and to numbers. */
const TELLING = [...Buffer.from('"{}[]:,\\-+.eE0123456789tfnu/ \n\r\t'), 0, 0x7f, 0x80, 0xef, 0xff];

/** Longest stretch that one mutation deletes, inserts or duplicates. */
const STRETCH = 64;

type Mutation = (bytes: Buffer) => Buffer;

/** Zero-based index that fits `length`, from any natural number. */
function within(at: number, length: number): number {
  return length === 0 ? 0 : at % length;
}

const place = fc.nat();
const byte = fc.oneof(fc.nat(255), fc.constantFrom(...TELLING));
const stretch = fc.integer({ min: 1, max: STRETCH });

const mutation: fc.Arbitrary<Mutation> = fc.oneof(
  fc.record({ at: place, bit: fc.nat(7) }).map(({ at, bit }): Mutation => (bytes) => {
    const copy = Buffer.from(bytes);
    if (copy.length > 0) copy[within(at, copy.length)]! ^= 1 << bit;
    return copy;
  }),
  fc.record({ at: place, byte }).map(({ at, byte: value }): Mutation => (bytes) => {
    const copy = Buffer.from(bytes);
    if (copy.length > 0) copy[within(at, copy.length)] = value;
    return copy;
  }),
  fc
    .record({ at: place, added: fc.array(byte, { minLength: 1, maxLength: 8 }) })
    .map(({ at, added }): Mutation => (bytes) => {
      const index = within(at, bytes.length + 1);
      return Buffer.concat([bytes.subarray(0, index), Buffer.from(added), bytes.subarray(index)]);
    }),
  fc.record({ at: place, length: stretch }).map(({ at, length }): Mutation => (bytes) => {
    const index = within(at, bytes.length);
    return Buffer.concat([bytes.subarray(0, index), bytes.subarray(index + length)]);
  }),
  fc
    .record({ at: place, to: place, length: stretch })
    .map(({ at, to, length }): Mutation => (bytes) => {
      const from = within(at, bytes.length);
      const index = within(to, bytes.length + 1);
      const copied = bytes.subarray(from, from + length);
      return Buffer.concat([bytes.subarray(0, index), copied, bytes.subarray(index)]);
    }),
  place.map(
    (at): Mutation =>
      (bytes) =>
        bytes.subarray(0, within(at, bytes.length + 1)),
  ),
);

/** One to four mutations, applied in order. */
export const byteMutations: fc.Arbitrary<(bytes: Uint8Array) => Buffer> = fc
  .array(mutation, { minLength: 1, maxLength: 4 })
  .map((mutations) => (bytes) => {
    let result = Buffer.from(bytes);
    for (const mutate of mutations) result = Buffer.from(mutate(result));
    return result;
  });
