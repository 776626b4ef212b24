/**
 * @file What a tokenizer.json must be before the library reads it: it takes any value for an id.
 */
import { isObject, type Json } from './tokenizer-files.js';

/** Largest id: token ids are held in 32-bit integers. */
const MAX_ID = 2 ** 31 - 1;

/** What is wrong with the vocabulary, the merges or the added tokens; undefined: nothing. */
export function findTokenizerFault(contents: Json): string | undefined {
  const { model } = contents;
  if (!isObject(model)) return 'has no model';
  return (
    vocabularyFault(model['vocab']) ??
    unknownFault(model) ??
    mergesFault(model['merges']) ??
    addedTokensFault(contents['added_tokens'])
  );
}

/** Token → id, or (Unigram) pairs of token and score in the order of ids. */
function vocabularyFault(vocab: unknown): string | undefined {
  if (Array.isArray(vocab)) {
    const index = (vocab as unknown[]).findIndex((pair) => !isScored(pair));
    return index < 0 ? undefined : `has a vocab whose entry ${index} is no token with a score`;
  }
  if (!isObject(vocab)) return 'has no vocab';
  return Object.values(vocab).every(isId) ? undefined : 'has ids in vocab that are no token ids';
}

/** A Unigram model names its unknown token by id. */
function unknownFault({ vocab, unk_id: id }: Json): string | undefined {
  if (!Array.isArray(vocab) || id === undefined || id === null) return undefined;
  return isId(id) && (id as number) < vocab.length ? undefined : 'has an unk_id outside of vocab';
}

/** "left right", or [left, right] each. */
function mergesFault(merges: unknown): string | undefined {
  if (merges === undefined || merges === null) return undefined;
  if (!Array.isArray(merges)) return 'has merges that are no list';
  const asText = typeof merges[0] === 'string';
  const isMerge = (merge: unknown): boolean => {
    const parts: unknown = asText && typeof merge === 'string' ? merge.split(' ') : merge;
    return (
      Array.isArray(parts) && parts.length === 2 && parts.every((part) => typeof part === 'string')
    );
  };
  const index = (merges as unknown[]).findIndex((merge) => !isMerge(merge));
  return index < 0 ? undefined : `has no pair of symbols in merges[${index}]`;
}

function addedTokensFault(added: unknown): string | undefined {
  if (added === undefined || added === null) return undefined;
  if (!Array.isArray(added)) return 'has added_tokens that are no list';
  const index = (added as unknown[]).findIndex(
    (token) => !isObject(token) || typeof token['content'] !== 'string' || !isId(token['id']),
  );
  return index < 0 ? undefined : `has no content and id in added_tokens[${index}]`;
}

function isId(value: unknown): boolean {
  return Number.isInteger(value) && (value as number) >= 0 && (value as number) <= MAX_ID;
}

function isScored(pair: unknown): boolean {
  return (
    Array.isArray(pair) &&
    pair.length === 2 &&
    typeof pair[0] === 'string' &&
    typeof pair[1] === 'number' &&
    Number.isFinite(pair[1])
  );
}
