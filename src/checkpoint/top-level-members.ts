/**
 * @file The members of one large JSON object, found in its bytes without parsing it whole.
 *
 * `JSON.parse` takes up to forty times the text's bytes, which a header of 100 MB can be made to
 * need. Here each member is cut out by its brackets, so that whoever asked parses one small text
 * after the other. What is cut out need not be JSON; its parser will say.
 */
import { isUtf8 } from 'node:buffer';

import { MAX_JSON_DEPTH } from '../../core/json-depth.js';
import {
  CLOSE_BRACE,
  CLOSE_BRACKET,
  COLON,
  COMMA,
  endOfStringBytes,
  OPEN_BRACE,
  OPEN_BRACKET,
  QUOTE,
} from '../../core/json-text.js';

/** A member: the text of its key with the quotes, and the bytes of its value. */
export interface RawMember {
  readonly key: string;
  readonly value: Uint8Array;
}

/**
 * Yields the members of the object in `json` in order.
 *
 * @param refuse makes the error from the fact
 * @throws what `refuse` makes: not UTF-8, no object, not valid JSON, nested too deeply
 */
export function* topLevelMembers(
  json: Uint8Array,
  refuse: (fact: string) => Error,
): Generator<RawMember, void, undefined> {
  if (!isUtf8(json)) throw refuse('is not valid UTF-8');
  if (json[0] !== OPEN_BRACE) throw refuse('does not begin with "{"');
  let at = skipSpace(json, 1);
  if (json[at] !== CLOSE_BRACE) {
    for (;;) {
      if (json[at] !== QUOTE) throw refuse('is not valid JSON');
      const keyEnd = stringEnd(json, at);
      const colon = skipSpace(json, keyEnd);
      if (json[colon] !== COLON) throw refuse('is not valid JSON');
      const start = skipSpace(json, colon + 1);
      const end = valueEnd(json, start, refuse);
      yield { key: utf8Text(json.subarray(at, keyEnd)), value: json.subarray(start, end) };
      at = end;
      if (json[at] !== COMMA) break;
      at = skipSpace(json, at + 1);
    }
  }
  if (json[at] !== CLOSE_BRACE || skipSpace(json, at + 1) !== json.length) {
    throw refuse('is not valid JSON');
  }
}

/** The text of UTF-8 bytes that have been checked. */
export function utf8Text(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString('utf8');
}

/** The index of the comma or brace behind the value at `start`, or the end of the text. */
function valueEnd(json: Uint8Array, start: number, refuse: (fact: string) => Error): number {
  let depth = 0;
  let at = start;
  while (at < json.length) {
    const byte = json[at];
    if (byte === QUOTE) {
      at = stringEnd(json, at);
      continue;
    }
    if (depth === 0 && (byte === COMMA || byte === CLOSE_BRACE)) break;
    if (byte === OPEN_BRACE || byte === OPEN_BRACKET) {
      depth += 1;
      if (depth >= MAX_JSON_DEPTH) throw refuse('is nested too deeply');
    } else if (byte === CLOSE_BRACE || byte === CLOSE_BRACKET) depth -= 1;
    at += 1;
  }
  return at;
}

/** The index behind the closing quote of the string that opens at `at`, or the end of the text. */
function stringEnd(json: Uint8Array, at: number): number {
  return Math.min(endOfStringBytes(json, at), json.length);
}

function skipSpace(json: Uint8Array, from: number): number {
  let at = from;
  while (json[at] === 0x20 || json[at] === 0x0a || json[at] === 0x0d || json[at] === 0x09) at += 1;
  return at;
}
