/**
 * @file A tokenizer without training: each UTF-8 byte is one token, and `<|endoftext|>` ends a text.
 *
 * The id of a byte is its value. In tokenizer.json each byte needs a visible symbol; these are
 * GPT-2's (`bytes_to_unicode` of openai/gpt-2's encoder.py): printable Latin-1 bytes stand for
 * themselves, the others, in ascending order, for the code points from 256 on.
 */

/** Text of the token that ends a text. */
export const END_OF_TEXT = '<|endoftext|>';

/** Its id, behind the 256 bytes. */
export const END_OF_TEXT_ID = 256;

/** Tokens of this tokenizer; a model needs at least this many embedding rows. */
export const BYTE_VOCABULARY_SIZE = 257;

const BYTE_LEVEL = { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true } as const;

/** Contents of tokenizer.json: byte-level BPE without merges, so no regular expression either. */
export function byteLevelTokenizer(): object {
  const vocab: Record<string, number> = {};
  byteSymbols().forEach((symbol, byte) => (vocab[symbol] = byte));
  vocab[END_OF_TEXT] = END_OF_TEXT_ID;
  return {
    version: '1.0',
    truncation: null,
    padding: null,
    added_tokens: [
      {
        id: END_OF_TEXT_ID,
        content: END_OF_TEXT,
        single_word: false,
        lstrip: false,
        rstrip: false,
        normalized: false,
        special: true,
      },
    ],
    normalizer: null,
    pre_tokenizer: { ...BYTE_LEVEL, use_regex: false },
    post_processor: { ...BYTE_LEVEL, use_regex: false },
    decoder: { ...BYTE_LEVEL, use_regex: false },
    model: {
      type: 'BPE',
      dropout: null,
      unk_token: null,
      continuing_subword_prefix: null,
      end_of_word_suffix: null,
      fuse_unk: false,
      byte_fallback: false,
      ignore_merges: false,
      vocab,
      merges: [],
    },
  };
}

/** Contents of tokenizer_config.json for a model that reads `maxPositions` tokens. */
export function byteLevelTokenizerConfig(maxPositions: number): object {
  return {
    tokenizer_class: 'PreTrainedTokenizerFast',
    bos_token: END_OF_TEXT,
    eos_token: END_OF_TEXT,
    add_prefix_space: false,
    clean_up_tokenization_spaces: false,
    model_max_length: maxPositions,
  };
}

/** The visible symbol of each byte, at the byte's index. */
export function byteSymbols(): string[] {
  let hiddenCount = 0;
  return Array.from({ length: 256 }, (_, byte) => {
    const visible =
      (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
    return String.fromCodePoint(visible ? byte : 256 + hiddenCount++);
  });
}
