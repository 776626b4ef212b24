// Goal: regions are aligned, disjoint, gapless and balanced, and their size is known ahead exactly.
import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import { CHUNK_ELEMENTS, elementBytes, type ElementType } from '../../core/types.js';
import { createLayout, layoutBytes, type LayoutRequest } from '../../tiers/nvme/layout.js';

const elementType = fc.constantFrom<ElementType>('float32', 'bfloat16', 'uint16');
const elementCount = fc.oneof(
  fc.integer({ min: 1, max: 5000 }),
  fc.integer({ min: 1, max: 5 * CHUNK_ELEMENTS }),
);
const request: fc.Arbitrary<LayoutRequest> = fc.record({
  states: fc
    .array(fc.record({ elementCount, elementType }), { maxLength: 30 })
    .map((list) => list.map((spec, shard) => ({ ...spec, shard, state: 'exp_avg' as const }))),
  scratch: fc
    .array(fc.record({ elementCount, elementType }), { maxLength: 10 })
    .map((list) => list.map((spec, index) => ({ ...spec, name: `scratch${index}` }))),
  fileCount: fc.integer({ min: 1, max: 4 }),
  slots: fc.constantFrom<1 | 2>(1, 2),
});

describe('createLayout', () => {
  it('covers every file from byte 0 without gap or overlap, all at multiples of 4096', () => {
    fc.assert(
      fc.property(request, (wanted) => {
        const layout = createLayout(wanted);
        const pieces: { file: number; from: number; to: number }[] = [];
        for (const region of layout.states) {
          expect(region.slots).toHaveLength(wanted.slots);
          for (const { headerOffset, payloadOffset } of region.slots) {
            expect(payloadOffset).toBe(headerOffset + region.headerBytes);
            const to = payloadOffset + region.paddedBytes;
            pieces.push({ file: region.fileIndex, from: headerOffset, to });
          }
        }
        for (const { fileIndex, payloadOffset, paddedBytes } of layout.scratch) {
          pieces.push({ file: fileIndex, from: payloadOffset, to: payloadOffset + paddedBytes });
        }
        layout.fileBytes.forEach((bytes, file) => {
          const mine = pieces.filter((piece) => piece.file === file);
          mine.sort((a, b) => a.from - b.from);
          let end = 0;
          for (const { from, to } of mine) {
            expect(from).toBe(end);
            expect(to % 4096).toBe(0);
            end = to;
          }
          expect(bytes).toBe(end);
        });
      }),
    );
  });

  it('says the sum of the files ahead', () => {
    fc.assert(
      fc.property(request, (wanted) => {
        const { totalBytes, fileBytes } = createLayout(wanted);
        expect(layoutBytes(wanted)).toBe(totalBytes);
        expect(fileBytes.reduce((sum, bytes) => sum + bytes, 0)).toBe(totalBytes);
      }),
    );
  });

  it('pads each payload by less than a page and keeps files within one region of each other', () => {
    fc.assert(
      fc.property(request, (wanted) => {
        const layout = createLayout(wanted);
        let largest = 0;
        for (const region of [...layout.states, ...layout.scratch]) {
          const bytes = region.elementCount * elementBytes(region.elementType);
          expect(region.byteLength).toBe(bytes);
          expect(region.paddedBytes - bytes).toBeLessThan(4096);
          expect(region.chunkCount).toBe(Math.ceil(bytes / region.chunkBytes));
          const header = 'headerBytes' in region ? region.headerBytes : 0;
          largest = Math.max(largest, (region.paddedBytes + header) * wanted.slots);
        }
        const spread = Math.max(...layout.fileBytes) - Math.min(...layout.fileBytes);
        expect(spread).toBeLessThanOrEqual(largest);
      }),
    );
  });

  it('gives a header of one page to a shard of the default size, in figures', () => {
    const wanted: LayoutRequest = {
      states: [{ shard: 0, state: 'param', elementCount: 16_777_216, elementType: 'bfloat16' }],
      scratch: [{ name: 'activation', elementCount: 1000, elementType: 'float32' }],
      fileCount: 1,
      slots: 2,
    };
    expect(layoutBytes(wanted)).toBe(2 * (4096 + 33_554_432) + 4096);
  });

  it('refuses the same state twice and a region without elements', () => {
    const state = { shard: 1, state: 'param', elementCount: 1, elementType: 'float32' } as const;
    const rest = { scratch: [], fileCount: 1, slots: 1 } as const;
    expect(() => createLayout({ ...rest, states: [state, state] })).toThrow('placed once');
    const empty = { ...state, elementCount: 0 };
    expect(() => createLayout({ ...rest, states: [empty] })).toThrow('holds elements');
  });
});
