// Goal: texts fall into the pieces of the Rust library, by every pre-tokenizer that differs here.
import { readFileSync } from 'node:fs';
import * as library from '@huggingface/tokenizers';
import { describe, expect, it } from 'vitest';
import { correctPreTokenizer } from '../../src/data/pre-tokenizers.js';

interface Recorded {
  readonly texts: readonly string[];
  readonly pieces: readonly {
    readonly pre_tokenizer: object;
    /** Of each text. */
    readonly texts: readonly (readonly string[])[];
  }[];
}

type PreTokenizer = (text: string, options: object) => string[];

const { Tokenizer } = library as unknown as {
  Tokenizer: new (contents: object, config: object) => { readonly pre_tokenizer: PreTokenizer };
};

const recorded = JSON.parse(
  readFileSync(new URL('../../fixtures/tokenizers/pre-tokenizers.json', import.meta.url), 'utf8'),
) as Recorded;

function corrected(described: object): PreTokenizer {
  const model = { type: 'BPE', vocab: {}, merges: [] };
  const none = { added_tokens: [], normalizer: null, post_processor: null, decoder: null };
  const contents = { ...none, model, pre_tokenizer: described };
  const made = new Tokenizer(contents, {}).pre_tokenizer;
  correctPreTokenizer(made, described);
  return made;
}

describe('a pre-tokenizer', () => {
  it.each(recorded.pieces.map((one) => [JSON.stringify(one.pre_tokenizer), one] as const))(
    '%s',
    (_name, { pre_tokenizer: described, texts }) => {
      const split = corrected(described);
      for (const [index, text] of recorded.texts.entries()) {
        if (text === '') continue; // Never gets here.
        expect(split(text, { section_index: 0 }), text).toEqual(texts[index]);
      }
    },
  );

  it('of a behaviour that is unknown is refused', () => {
    const described = { type: 'Split', pattern: { String: 'x' }, behavior: 'Sideways' };
    expect(() => corrected(described)).toThrow('Sideways');
  });
});
