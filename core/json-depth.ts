/**
 * @file How deeply JSON text is nested, without parsing it.
 *
 * Parsing `[[[[…` takes some forty bytes of memory per byte of text, and whoever walks the result by
 * recursion runs out of stack; no file that we read is nested more deeply than a few levels.
 */
import {
  CLOSE_BRACE,
  CLOSE_BRACKET,
  endOfString,
  OPEN_BRACE,
  OPEN_BRACKET,
  QUOTE,
} from './json-text.js';

/** Levels of objects and lists that the files of a model may have. */
export const MAX_JSON_DEPTH = 100;

/** Whether `text`, JSON or not, opens more than `limit` objects and lists within each other. */
export function isNestedDeeper(text: string, limit: number): boolean {
  let depth = 0;
  for (let at = 0; at < text.length; at += 1) {
    const code = text.charCodeAt(at);
    if (code === QUOTE) {
      at = endOfString(text, at) - 1;
    } else if (code === OPEN_BRACE || code === OPEN_BRACKET) {
      depth += 1;
      if (depth > limit) return true;
    } else if (code === CLOSE_BRACE || code === CLOSE_BRACKET) depth -= 1;
  }
  return false;
}
