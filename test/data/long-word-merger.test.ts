// Goal: long words get the symbols that the definition of byte-pair encoding gives, in bounded time.
import fc from 'fast-check';
import { expect, it } from 'vitest';
import { LongWordMerger } from '../../src/data/long-word-merger.js';
import { loadTokenizer } from '../../src/data/text-tokenizer.js';
import { chatFolder } from './chat-fixtures.js';

type Pair = readonly [string, string];

/** The definition: the best pair there is, the leftmost of its kind, until there is none. */
function mergeByDefinition(merges: readonly Pair[], word: readonly string[]): string[] {
  const symbols = [...word];
  for (;;) {
    const at = merges
      .map(([left, right]) => symbols.findIndex((s, i) => s === left && symbols[i + 1] === right))
      .find((index) => index >= 0);
    if (at === undefined) return symbols;
    symbols.splice(at, 2, symbols[at]! + symbols[at + 1]!);
  }
}

it('words are merged as the definition says, whatever the merges', () => {
  const symbol = fc.constantFrom('a', 'b', 'ab', 'ba', 'aa', 'bb', 'aba');
  const merges = fc.uniqueArray(fc.tuple(symbol, symbol), { selector: (pair) => pair.join(' ') });
  const word = fc.array(fc.constantFrom('a', 'b', 'c'), { maxLength: 40 });
  fc.assert(
    fc.property(merges, word, (pairs, characters) => {
      const expected = mergeByDefinition(pairs, characters);
      expect(new LongWordMerger(pairs).merge(characters)).toEqual(expected);
    }),
    { numRuns: 500 },
  );
});

it('two megabytes without a space take seconds and no stack', async () => {
  const tokenizer = await loadTokenizer(chatFolder('chatml'));
  const start = performance.now();
  const ids = tokenizer.encode('abcdefghij'.repeat(200_000)) as readonly number[];
  expect(performance.now() - start).toBeLessThan(20_000);
  expect(tokenizer.decode(ids.slice(0, 1000))).toMatch(/^(abcdefghij)+[a-j]*$/);
  expect(ids.length % 200_000).toBeLessThan(10);
}, 30_000);

it('words beyond the bound are refused', () => {
  const merger = new LongWordMerger([['a', 'a']]);
  const word = { length: 2 ** 24 + 1 } as unknown as string[];
  expect(() => merger.merge(word)).toThrow(RangeError);
});
