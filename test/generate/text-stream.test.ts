// Goal: text comes in whole characters and nothing of a stop string does, however tokens cut it.
import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { TextStream, type Decoder } from '../../src/generate/text-stream.js';

const SKIPPED = 256;

/** A byte per token, as a byte-level tokenizer decodes; 256 is a special token. */
const bytes: Decoder = {
  decode: (ids) => {
    const known = ids.filter((id) => id !== SKIPPED);
    return new TextDecoder('utf-8', { ignoreBOM: true }).decode(Uint8Array.from(known));
  },
};

/** Runs of byte tokens that are no UTF-8 become one U+FFFD per byte, as byte fallback has it. */
const fallback: Decoder = {
  decode: (ids) => {
    try {
      return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(
        Uint8Array.from(ids),
      );
    } catch {
      return '\ufffd'.repeat(ids.length);
    }
  },
};

const idsOf = (text: string): number[] => [...new TextEncoder().encode(text)];

function pieces(decoder: Decoder, ids: readonly number[], stop: readonly string[] = []): string[] {
  const stream = new TextStream(decoder, stop);
  const texts: string[] = [];
  for (const id of ids) {
    texts.push(stream.push(id));
    if (stream.stopped) break;
  }
  return [...texts, stream.finish()];
}

/** Whether a piece begins or ends within a surrogate pair. */
const isHalf = (text: string): boolean => /^[\udc00-\udfff]|[\ud800-\udbff]$/.test(text);

const unicode = fc.string({ unit: 'binary', maxLength: 40 });

describe.each([
  ['byte-level', bytes],
  ['byte-fallback', fallback],
])('a stream of %s tokens', (_, decoder) => {
  it('gives the whole text in whole characters, each as soon as it is there', () => {
    fc.assert(
      fc.property(unicode, (text) => {
        const texts = pieces(decoder, idsOf(text));
        expect(texts.join('')).toBe(text);
        expect(texts.some(isHalf)).toBe(false);
        if (text.includes('\ufffd')) return;
        expect(texts.filter((piece) => piece !== '')).toEqual(Array.from(text));
      }),
    );
  });
});

describe('a stream', () => {
  it('gives any bytes as they decode', () => {
    fc.assert(
      fc.property(fc.array(fc.integer({ min: 0, max: 255 }), { maxLength: 60 }), (ids) => {
        expect(pieces(bytes, ids).join('')).toBe(bytes.decode(ids, { skipSpecialTokens: true }));
      }),
    );
  });

  it('goes on after a long run of bytes that are no characters', () => {
    const ids = [...Array<number>(300).fill(0xff), ...idsOf('é'), ...idsOf('x')];
    const texts = pieces(bytes, ids);
    expect(texts.join('')).toBe(`${'\ufffd'.repeat(300)}éx`);
    // The run is given out long before its end.
    expect(texts.slice(0, 150).join('').length).toBeGreaterThan(100);
  });

  it('leaves special tokens out', () => {
    expect(pieces(bytes, [97, SKIPPED, 98, SKIPPED]).join('')).toBe('ab');
  });

  it('keeps the space that a tokenizer puts before a word', () => {
    const words = ['Hello', 'big', 'world'];
    const decoder: Decoder = { decode: (ids) => ids.map((id) => words[id]).join(' ') };
    expect(pieces(decoder, [0, 1, 2]).join('')).toBe('Hello big world');
  });

  it('ends before the first stop string and gives out nothing of it', () => {
    fc.assert(
      fc.property(
        fc.string({ unit: fc.constantFrom('a', 'b'), maxLength: 30 }),
        fc.array(fc.string({ unit: fc.constantFrom('a', 'b'), minLength: 1, maxLength: 4 }), {
          minLength: 1,
          maxLength: 3,
        }),
        (text, stop) => {
          const ends = stop.map((one) => text.indexOf(one)).filter((at) => at >= 0);
          const actual = pieces(bytes, idsOf(text), stop).join('');
          if (ends.length === 0) {
            expect(actual).toBe(text);
            return;
          }
          // The stop string that is complete first ends the text.
          const firstEnd = Math.min(
            ...stop.flatMap((one) => (text.includes(one) ? [text.indexOf(one) + one.length] : [])),
          );
          const seen = text.slice(0, firstEnd);
          const cut = Math.min(...stop.map((one) => seen.indexOf(one)).filter((at) => at >= 0));
          expect(actual).toBe(text.slice(0, cut));
        },
      ),
    );
  });
});
