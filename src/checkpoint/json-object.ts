/**
 * @file JSON text that must be one object without duplicate keys: headers, indexes, configurations.
 */
import { MAX_JSON_DEPTH, isNestedDeeper } from '../../core/json-depth.js';
import { quoteName } from './file-errors.js';
import { findDuplicateKey } from '../../core/json-duplicate-keys.js';

/** A parsed JSON object. */
export type JsonObject = Readonly<Record<string, unknown>>;

/** Whether `value` is an object and neither array nor null. */
export function isJsonObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/**
 * The object that `text` describes.
 *
 * @param refuse makes the error from the fact, e.g. "is not valid JSON"
 * @throws what `refuse` makes
 */
export function parseJsonObject(
  text: string,
  refuse: (fact: string, cause?: unknown) => Error,
): JsonObject {
  if (isNestedDeeper(text, MAX_JSON_DEPTH)) throw refuse('is nested too deeply');
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw refuse('is not valid JSON', error);
  }
  if (!isJsonObject(value)) throw refuse('is not a JSON object');
  const duplicate = findDuplicateKey(text);
  if (duplicate !== undefined) throw refuse(`holds the key ${quoteName(duplicate)} twice`);
  return value;
}
