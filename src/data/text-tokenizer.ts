/**
 * @file The tokenizer of a model folder: tokenizer.json, read by `@huggingface/tokenizers`.
 *
 * Nothing is downloaded. The end-of-text token is named by tokenizer_config.json, else its id
 * stands in generation_config.json or config.json. Ids and offsets are the Rust library's.
 */
import { join } from 'node:path';
import * as library from '@huggingface/tokenizers';
import { findTokenizerFault } from './check-tokenizer-json.js';
import { LongWordMerger } from './long-word-merger.js';
import { correctPreTokenizer } from './pre-tokenizers.js';
import { TokenAligner } from './token-aligner.js';
import type { TokenSpelling } from './token-aligner.js';
import {
  invalidFile,
  isObject,
  readJson,
  readSpecialTokens,
  tokenText,
} from './tokenizer-files.js';
import type { Json } from './tokenizer-files.js';

/** Text ↔ token ids. */
export interface TextTokenizer {
  /**
   * Ids, by default with the special tokens that tokenizer.json adds. An id is undefined for a symbol
   * that neither the vocabulary nor an unknown token covers. Throws plain errors.
   */
  encode(text: string, options?: EncodeOptions): readonly (number | undefined)[];
  /** Ids without added special tokens, and where each stands. Throws plain errors. */
  encodeWithOffsets(text: string): EncodedText;
  /** The text; ids outside the vocabulary are left out. */
  decode(ids: readonly number[], options?: DecodeOptions): string;
  /** Undefined when the folder names none. */
  readonly eosTokenId: number | undefined;
  /** `bos_token`, `eos_token`, … as the folder names them. */
  readonly specialTokens: Readonly<Record<string, string>>;
}

/** How a text is encoded. */
export interface EncodeOptions {
  /** What the post-processor adds, such as a first `<s>`; true unless given. */
  readonly addSpecialTokens?: boolean;
}

/** How ids are decoded. */
export interface DecodeOptions {
  /** Leaves special tokens out; false unless given. */
  readonly skipSpecialTokens?: boolean;
}

/** A text as tokens. */
export interface EncodedText {
  readonly ids: readonly (number | undefined)[];
  /** Start and end of each token in UTF-8 bytes, alternating; undefined: unknown. */
  readonly offsets: Int32Array | undefined;
}

/** What is used of the library's Tokenizer. */
interface LibraryTokenizer {
  readonly model: LibraryModel;
  readonly pre_tokenizer: unknown;
  encode(
    text: string,
    options: { add_special_tokens: boolean },
  ): { readonly ids: readonly (number | undefined)[]; readonly tokens: readonly string[] };
  decode(
    ids: readonly number[],
    options: { skip_special_tokens: boolean; clean_up_tokenization_spaces: boolean },
  ): string;
  token_to_id(token: string): number | undefined;
  id_to_token(id: number): string | undefined;
  get_added_tokens_decoder(): ReadonlyMap<number, { readonly content: string }>;
}

/** Byte-pair models have `bpe` and `merges`. */
interface LibraryModel {
  bpe?: (word: string) => string[];
  readonly merges?: readonly (readonly [string, string])[];
  readonly continuing_subword_suffix?: string | null;
  readonly end_of_word_suffix?: string | null;
}

// The library's typings have imports that NodeNext does not resolve.
const { Tokenizer } = library as unknown as {
  Tokenizer: new (contents: object, config: object) => LibraryTokenizer;
};

/** From here on a word is merged in integers. Below, the library caches words. */
const LONG_WORD = 512;

/**
 * The tokenizer of `folder`.
 *
 * @throws TOKENIZER_INVALID when tokenizer.json is missing or one of the files is broken
 */
export async function loadTokenizer(folder: string): Promise<TextTokenizer> {
  const path = join(folder, 'tokenizer.json');
  const contents = await readJson(path);
  if (contents === undefined) {
    throw invalidFile(path, 'is missing; text rows need it, rows with input_ids do not');
  }
  const fault = findTokenizerFault(contents);
  if (fault !== undefined) throw invalidFile(path, `${fault}; fetch it again`);
  const config = (await readJson(join(folder, 'tokenizer_config.json'))) ?? {};
  let tokenizer: LibraryTokenizer;
  try {
    // The library insists on a list; the file may leave it out.
    tokenizer = new Tokenizer({ added_tokens: [], ...contents }, config);
    correctPreTokenizer(tokenizer.pre_tokenizer, contents['pre_tokenizer']);
  } catch (error) {
    throw invalidFile(path, `cannot be used: ${(error as Error).message}`, error);
  }
  mergeLongWords(tokenizer.model);
  const aligner = new TokenAligner(spellingOf(contents, tokenizer));
  // Absent means false since transformers 5.
  const cleanUp = config['clean_up_tokenization_spaces'] === true;
  return {
    encode: (text, options) =>
      tokenizer.encode(text, { add_special_tokens: options?.addSpecialTokens ?? true }).ids,
    encodeWithOffsets: (text) => {
      const { ids, tokens } = tokenizer.encode(text, { add_special_tokens: false });
      return { ids, offsets: aligner.offsets(text, tokens) };
    },
    decode: (ids, options) => {
      const known = ids.filter((id) => tokenizer.id_to_token(id) !== undefined);
      if (known.length === 0) return '';
      return tokenizer.decode(known, {
        skip_special_tokens: options?.skipSpecialTokens ?? false,
        clean_up_tokenization_spaces: cleanUp,
      });
    },
    eosTokenId: await findEosTokenId(folder, tokenizer, config['eos_token']),
    specialTokens: await readSpecialTokens(folder),
  };
}

function mergeLongWords(model: LibraryModel): void {
  const { bpe, merges } = model;
  if (bpe === undefined || merges === undefined) return;
  // Models with suffixes split on white space and have no long words.
  if ((model.continuing_subword_suffix ?? model.end_of_word_suffix ?? '') !== '') return;
  let merger: LongWordMerger | undefined;
  model.bpe = (word) => {
    if (word.length < LONG_WORD) return bpe.call(model, word);
    merger ??= new LongWordMerger(merges);
    return merger.merge(Array.from(word));
  };
}

function spellingOf(contents: Json, tokenizer: LibraryTokenizer): TokenSpelling {
  const added = new Set<string>();
  for (const token of tokenizer.get_added_tokens_decoder().values()) added.add(token.content);
  const trimming = partsOf(contents['post_processor']).find(
    (part) => part['trim_offsets'] === true,
  );
  return {
    byteLevel: partsOf(contents['pre_tokenizer']).some((part) => part['type'] === 'ByteLevel'),
    prepends: partsOf(contents['normalizer']).some((part) => part['type'] === 'Prepend'),
    isAdded: (token) => added.has(token),
    trim: trimming && { addPrefixSpace: trimming['add_prefix_space'] === true },
  };
}

/** A normalizer, pre-tokenizer or post-processor and, of a sequence, all its parts. */
function partsOf(part: unknown): readonly Json[] {
  if (!isObject(part)) return [];
  const parts = part['normalizers'] ?? part['pretokenizers'] ?? part['processors'];
  return [part, ...(Array.isArray(parts) ? (parts as unknown[]).flatMap(partsOf) : [])];
}

async function findEosTokenId(
  folder: string,
  tokenizer: LibraryTokenizer,
  token: unknown,
): Promise<number | undefined> {
  const text = tokenText(token);
  if (text !== undefined) {
    const id = tokenizer.token_to_id(text);
    if (id !== undefined) return id;
    const path = join(folder, 'tokenizer_config.json');
    throw invalidFile(
      path,
      `names the eos_token ${JSON.stringify(text)}, which tokenizer.json lacks`,
    );
  }
  for (const name of ['generation_config.json', 'config.json']) {
    const value = (await readJson(join(folder, name)))?.['eos_token_id'];
    // Several are allowed (chat models); the first ends a text.
    const id: unknown = Array.isArray(value) ? value[0] : value;
    if (typeof id === 'number') return id;
  }
  return undefined;
}
