// Goal: the byte-level tokenizer maps any text to its UTF-8 bytes and back, in the library we use.
import * as library from '@huggingface/tokenizers';
import fc from 'fast-check';
import { expect, it } from 'vitest';

import {
  BYTE_VOCABULARY_SIZE,
  END_OF_TEXT,
  END_OF_TEXT_ID,
  byteLevelTokenizer,
  byteLevelTokenizerConfig,
  byteSymbols,
} from '../../src/checkpoint/byte-level-tokenizer.js';

/** The part used here: the package's own typings do not resolve under NodeNext. */
interface Tokenizer {
  encode(text: string): { ids: number[] };
  decode(ids: number[], options?: { skip_special_tokens: boolean }): string;
}

const { Tokenizer } = library as unknown as {
  Tokenizer: new (tokenizer: unknown, config: unknown) => Tokenizer;
};

const tokenizer = new Tokenizer(
  JSON.parse(JSON.stringify(byteLevelTokenizer())),
  JSON.parse(JSON.stringify(byteLevelTokenizerConfig(64))),
);

it('has one distinct symbol per byte, as in GPT-2', () => {
  const symbols = byteSymbols();
  expect(new Set(symbols).size).toBe(256);
  expect(symbols[0x20]).toBe('Ġ');
  expect(symbols[0x0a]).toBe('Ċ');
  expect(symbols[0x41]).toBe('A');
  expect(symbols[0xad]).toBe('Ń');
});

it.each([
  ' leading and trailing ',
  'naïve Größe',
  '日本語',
  '👩‍👩‍👧 🏳️‍🌈',
  'a\r\n\tb  c\u0000',
  "it's 12\n",
])('encodes %j to its UTF-8 bytes and decodes it again', (text) => {
  const { ids } = tokenizer.encode(text);
  expect(ids).toEqual([...new TextEncoder().encode(text)]);
  expect(tokenizer.decode(ids)).toBe(text);
});

it('encodes any well-formed text to its bytes and back, with ids below the vocabulary size', () => {
  fc.assert(
    fc.property(fc.string({ unit: 'binary', minLength: 1 }), (text) => {
      fc.pre(!text.includes(END_OF_TEXT));
      const { ids } = tokenizer.encode(text);
      expect(ids).toEqual([...new TextEncoder().encode(text)]);
      expect(tokenizer.decode(ids)).toBe(text);
      expect(ids.every((id) => id < BYTE_VOCABULARY_SIZE)).toBe(true);
    }),
    { numRuns: 300 },
  );
});

it('keeps the end of a text as one special token, and an empty text empty', () => {
  const { ids } = tokenizer.encode(`ab${END_OF_TEXT}c`);
  expect(ids).toEqual([0x61, 0x62, END_OF_TEXT_ID, 0x63]);
  expect(tokenizer.encode('').ids).toEqual([]);
  expect(tokenizer.decode(ids, { skip_special_tokens: true })).toBe('abc');
});
