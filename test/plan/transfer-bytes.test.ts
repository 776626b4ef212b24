// Goal: bytes of ranges of chunked states are what going over them chunk by chunk counts.
import fc from 'fast-check';
import { expect, it } from 'vitest';
import { CHUNK_ELEMENTS, IO_ALIGNMENT } from '../../core/types.js';
import { chunkBytes, writeBytes } from '../../src/plan/transfer-bytes.js';

/** Goes over the chunks that a range touches. */
function byChunk(total: number, elementBytes: number, start: number, count: number) {
  let all = 0;
  let partial = 0;
  for (let first = 0; first < total; first += CHUNK_ELEMENTS) {
    const length = Math.min(CHUNK_ELEMENTS, total - first);
    const covered = Math.min(start + count, first + length) - Math.max(start, first);
    if (covered <= 0) continue;
    const bytes = Math.ceil((length * elementBytes) / IO_ALIGNMENT) * IO_ALIGNMENT;
    all += bytes;
    if (covered < length) partial += bytes;
  }
  return { all, partial };
}

it('counts what a range reads and writes, its ends included', () => {
  const near = fc
    .tuple(fc.integer({ min: 0, max: 5 }), fc.integer({ min: -2, max: 2 }))
    .map(([chunks, more]) => Math.max(0, chunks * CHUNK_ELEMENTS + more));
  fc.assert(
    fc.property(near, near, near, fc.constantFrom(2, 4), (a, b, c, elementBytes) => {
      const [start = 0, end = 0, total = 0] = [a, b, c].sort((x, y) => x - y);
      const count = end - start;
      const { all, partial } = byChunk(total, elementBytes, start, count);
      expect(chunkBytes(total, elementBytes, start, count)).toBe(all);
      const read = (options: { add: boolean; preserve?: boolean }) => {
        const bytes = writeBytes(total, elementBytes, start, count, options);
        expect(bytes.written).toBe(all);
        return bytes.read;
      };
      expect(read({ add: true })).toBe(all);
      expect(read({ add: false })).toBe(partial);
      expect(read({ add: false, preserve: false })).toBe(0);
    }),
    { numRuns: 500 },
  );
});
