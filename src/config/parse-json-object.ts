/**
 * @file JSON texts of configurations: one object, strictly JSON, no key twice.
 */
import { SpillwayError } from '../../core/errors.js';
import { isNestedDeeper, MAX_JSON_DEPTH } from '../../core/json-depth.js';
import { findDuplicateKey } from '../../core/json-duplicate-keys.js';

/**
 * The object that `text` is.
 *
 * @param what names the text in messages
 * @throws CONFIG_INVALID when it is not valid JSON, no object, or has a key twice
 */
export function parseJsonObject(text: string, what: string): Record<string, unknown> {
  // A byte order mark is not JSON, but editors write one.
  const json = text.replace(/^\uFEFF/, '');
  if (isNestedDeeper(json, MAX_JSON_DEPTH)) throw invalid(what, 'is nested too deeply');
  let value: unknown;
  try {
    value = JSON.parse(json);
  } catch (error) {
    throw invalid(what, `is not valid JSON: ${(error as Error).message}`, error);
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw invalid(what, 'is not a JSON object, such as {"key": 1}');
  }
  const twin = findDuplicateKey(json);
  if (twin !== undefined) throw invalid(what, `has the key "${twin}" twice; keep one`);
  return value as Record<string, unknown>;
}

function invalid(what: string, message: string, cause?: unknown): SpillwayError {
  return new SpillwayError('CONFIG_INVALID', `${what} ${message}`, {}, cause);
}
