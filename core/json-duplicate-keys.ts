/**
 * @file Finds a key that one JSON object holds twice, which `JSON.parse` silently lets the last win.
 *
 * Works on text that `JSON.parse` has accepted, so only strings, braces and brackets need a look.
 */
import {
  CLOSE_BRACE,
  CLOSE_BRACKET,
  COLON,
  endOfString,
  OPEN_BRACE,
  OPEN_BRACKET,
  QUOTE,
} from './json-text.js';

/** The first duplicate key in valid JSON `text`, unescaped, or undefined. Linear time. */
export function findDuplicateKey(text: string): string | undefined {
  // Keys of each open object; null for an open array.
  const open: (Set<string> | null)[] = [];
  for (let at = 0; at < text.length; at += 1) {
    const code = text.charCodeAt(at);
    if (code === OPEN_BRACE) open.push(new Set());
    else if (code === OPEN_BRACKET) open.push(null);
    else if (code === CLOSE_BRACE || code === CLOSE_BRACKET) open.pop();
    else if (code === QUOTE) {
      const end = endOfString(text, at);
      const keys = open.at(-1);
      if (keys instanceof Set && text.charCodeAt(skipSpace(text, end)) === COLON) {
        const key = JSON.parse(text.slice(at, end)) as string;
        if (keys.has(key)) return key;
        keys.add(key);
      }
      at = end - 1;
    }
  }
  return undefined;
}

function skipSpace(text: string, from: number): number {
  let at = from;
  while (at < text.length && ' \t\n\r'.includes(text.charAt(at))) at += 1;
  return at;
}
