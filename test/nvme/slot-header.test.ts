// Goal: a header says what was written, and any changed byte is noticed.
import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import {
  decodeSlotHeader,
  encodeSlotHeader,
  slotHeaderBytes,
  type SlotHeader,
} from '../../tiers/nvme/slot-header.js';
import { failure } from './support.js';

const header: fc.Arbitrary<SlotHeader> = fc
  .record({
    shard: fc.nat(2 ** 31 - 1),
    state: fc.constantFrom('param', 'master_lo', 'exp_avg', 'exp_avg_sq', 'grad'),
    slot: fc.nat(1),
    elementType: fc.constantFrom('float32', 'bfloat16', 'float16', 'int32', 'uint16'),
    generation: fc.maxSafeNat(),
    step: fc.maxSafeNat(),
    payloadBytes: fc.maxSafeNat(),
    chunkCount: fc.oneof(fc.integer({ min: 1, max: 64 }), fc.integer({ min: 1000, max: 3000 })),
    sealed: fc.boolean(),
    seed: fc.nat(),
  })
  .map(({ sealed, seed, ...rest }) => ({
    ...rest,
    checksums: sealed
      ? Uint32Array.from({ length: rest.chunkCount }, (_, i) => Math.imul(i + seed, 2654435761))
      : undefined,
  }));

const encode = (value: SlotHeader): Uint8Array => {
  const bytes = new Uint8Array(slotHeaderBytes(value.chunkCount)).fill(0xaa);
  encodeSlotHeader(value, bytes);
  return bytes;
};

describe('slot header', () => {
  it('decodes to what was encoded', () => {
    fc.assert(
      fc.property(header, (value) => {
        expect(decodeSlotHeader(encode(value), 'x', 0)).toEqual(value);
      }),
    );
  });

  it('refuses every single changed byte, with path and offset', () =>
    fc.assert(
      fc.asyncProperty(
        header,
        fc.nat(),
        fc.integer({ min: 1, max: 255 }),
        async (value, at, xor) => {
          const bytes = encode(value);
          bytes[at % bytes.length]! ^= xor;
          const error = await failure(() => decodeSlotHeader(bytes, '/x/shards-0.bin', 8192));
          expect(error.code).toBe('STATE_CORRUPT');
          expect(error.facts).toMatchObject({ path: '/x/shards-0.bin', offset: 8192 });
        },
      ),
    ));

  it('refuses a header that lost a page', async () => {
    const value = { ...fc.sample(header, 1)[0]!, chunkCount: 2000, checksums: undefined };
    const bytes = encode(value);
    expect(bytes.length).toBe(2 * 4096);
    const error = await failure(() => decodeSlotHeader(bytes.subarray(0, 4096), 'x', 0));
    expect(error.code).toBe('STATE_CORRUPT');
  });
});
