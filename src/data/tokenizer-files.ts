/**
 * @file The small JSON files beside a tokenizer.json.
 */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { errnoOf } from '../../core/errno.js';
import { SpillwayError } from '../../core/errors.js';
import { MAX_JSON_DEPTH, isNestedDeeper } from '../../core/json-depth.js';

/** A JSON object. */
export type Json = Readonly<Record<string, unknown>>;

/** transformers' named special tokens: what a chat template sees as variables. */
const SPECIAL_TOKENS = [
  'bos_token',
  'eos_token',
  'unk_token',
  'sep_token',
  'pad_token',
  'cls_token',
  'mask_token',
] as const;

/** Whether `value` is a JSON object. */
export function isObject(value: unknown): value is Json {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** What TOKENIZER_INVALID says of a file. */
export function invalidFile(path: string, message: string, cause?: unknown): SpillwayError {
  return new SpillwayError('TOKENIZER_INVALID', `${path} ${message}`, {}, cause);
}

/** The text of the file, or undefined when there is none. @throws TOKENIZER_INVALID */
export async function readText(path: string): Promise<string | undefined> {
  try {
    return await readFile(path, 'utf8');
  } catch (error) {
    const errno = errnoOf(error);
    if (errno === 'ENOENT' || errno === 'ENOTDIR') return undefined;
    throw invalidFile(path, `cannot be read (${errno})`, error);
  }
}

/** The object in the file, or undefined when there is no file. @throws TOKENIZER_INVALID */
export async function readJson(path: string): Promise<Json | undefined> {
  const text = await readText(path);
  if (text === undefined) return undefined;
  if (isNestedDeeper(text, MAX_JSON_DEPTH)) throw invalidFile(path, 'is nested too deeply');
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw invalidFile(path, 'is not valid JSON; fetch it again', error);
  }
  if (!isObject(value)) throw invalidFile(path, 'is not a JSON object; fetch it again');
  return value;
}

/** The text of a token as the files write it: bare, or wrapped as `{"content": "</s>", …}`. */
export function tokenText(token: unknown): string | undefined {
  const text = isObject(token) ? token['content'] : token;
  return typeof text === 'string' ? text : undefined;
}

/** Special tokens of `folder` by name; tokenizer_config.json goes before special_tokens_map.json. */
export async function readSpecialTokens(folder: string): Promise<Readonly<Record<string, string>>> {
  const map = await readJson(join(folder, 'special_tokens_map.json'));
  const config = await readJson(join(folder, 'tokenizer_config.json'));
  const tokens: Record<string, string> = {};
  for (const name of SPECIAL_TOKENS) {
    const text = tokenText(config?.[name]) ?? tokenText(map?.[name]);
    if (text !== undefined) tokens[name] = text;
  }
  return tokens;
}
