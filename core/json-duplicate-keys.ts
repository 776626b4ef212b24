/**
 * @file Finds a key that one JSON object holds twice, which `JSON.parse` silently lets the last win.
 *
 * Works on text that `JSON.parse` has accepted, so only strings, braces and brackets need a look.
 */

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;
const OPEN_BRACKET = 0x5b;
const CLOSE_BRACKET = 0x5d;
const COLON = 0x3a;

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
      const end = closingQuote(text, at);
      const keys = open.at(-1);
      if (keys instanceof Set && text.charCodeAt(skipSpace(text, end + 1)) === COLON) {
        const key = JSON.parse(text.slice(at, end + 1)) as string;
        if (keys.has(key)) return key;
        keys.add(key);
      }
      at = end;
    }
  }
  return undefined;
}

function closingQuote(text: string, openQuote: number): number {
  let at = openQuote + 1;
  while (text.charCodeAt(at) !== QUOTE) at += text.charCodeAt(at) === BACKSLASH ? 2 : 1;
  return at;
}

function skipSpace(text: string, from: number): number {
  let at = from;
  while (at < text.length && ' \t\n\r'.includes(text.charAt(at))) at += 1;
  return at;
}
