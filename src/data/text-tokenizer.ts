/**
 * @file The tokenizer of a model folder: tokenizer.json, read by `@huggingface/tokenizers`.
 *
 * Nothing is downloaded. The end-of-text token is named by tokenizer_config.json, else its id
 * stands in generation_config.json or config.json.
 */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import * as library from '@huggingface/tokenizers';
import { SpillwayError } from '../../core/errors.js';

/** Text → token ids. */
export interface TextTokenizer {
  /** Ids with the special tokens that tokenizer.json adds. Throws plain errors. */
  encode(text: string): readonly number[];
  /** Undefined when the folder names none. */
  readonly eosTokenId: number | undefined;
}

/** What is used of the library's Tokenizer. */
interface LibraryTokenizer {
  encode(text: string): { readonly ids: readonly number[] };
  token_to_id(token: string): number | undefined;
}

// The library's typings have imports that NodeNext does not resolve.
const { Tokenizer } = library as unknown as {
  Tokenizer: new (contents: object, config: object) => LibraryTokenizer;
};

type Json = Readonly<Record<string, unknown>>;

/**
 * The tokenizer of `folder`.
 *
 * @throws TOKENIZER_INVALID when tokenizer.json is missing or one of the files is broken
 */
export async function loadTokenizer(folder: string): Promise<TextTokenizer> {
  const path = join(folder, 'tokenizer.json');
  const contents = await readJson(path);
  if (contents === undefined) {
    throw invalid(path, 'is missing; text rows need it, rows with input_ids do not');
  }
  const config = (await readJson(join(folder, 'tokenizer_config.json'))) ?? {};
  let tokenizer: LibraryTokenizer;
  try {
    // The library insists on a list; the file may leave it out.
    tokenizer = new Tokenizer({ added_tokens: [], ...contents }, config);
  } catch (error) {
    throw invalid(path, `cannot be used: ${(error as Error).message}`, error);
  }
  return {
    encode: (text) => tokenizer.encode(text).ids,
    eosTokenId: await findEosTokenId(folder, tokenizer, config['eos_token']),
  };
}

async function findEosTokenId(
  folder: string,
  tokenizer: LibraryTokenizer,
  token: unknown,
): Promise<number | undefined> {
  // Older files wrap it: {"content": "</s>", …}.
  const text = isObject(token) ? token['content'] : token;
  if (typeof text === 'string') {
    const id = tokenizer.token_to_id(text);
    if (id !== undefined) return id;
    const path = join(folder, 'tokenizer_config.json');
    throw invalid(path, `names the eos_token ${JSON.stringify(text)}, which tokenizer.json lacks`);
  }
  for (const name of ['generation_config.json', 'config.json']) {
    const value = (await readJson(join(folder, name)))?.['eos_token_id'];
    // Several are allowed (chat models); the first ends a text.
    const id: unknown = Array.isArray(value) ? value[0] : value;
    if (typeof id === 'number') return id;
  }
  return undefined;
}

/** The object in the file, or undefined when there is no file. */
async function readJson(path: string): Promise<Json | undefined> {
  let text: string;
  try {
    text = await readFile(path, 'utf8');
  } catch (error) {
    const errno = (error as NodeJS.ErrnoException).code;
    if (errno === 'ENOENT') return undefined;
    throw invalid(path, `cannot be read (${errno ?? 'unknown'})`, error);
  }
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw invalid(path, 'is not valid JSON; fetch it again', error);
  }
  if (!isObject(value)) throw invalid(path, 'is not a JSON object; fetch it again');
  return value;
}

function isObject(value: unknown): value is Json {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function invalid(path: string, message: string, cause?: unknown): SpillwayError {
  return new SpillwayError('TOKENIZER_INVALID', `${path} ${message}`, {}, cause);
}
