/**
 * @file Values of JSON as Python reads them, where JavaScript's lose what templates write.
 *
 * Python tells 1.0 from 1, has whole numbers of any size, reads 1e400 as infinity, and keeps the keys
 * of an object in order, "10" before "2" if they are written so. JSON.parse does not show how a number
 * was spelled or where a key stood, so such literals are first replaced by marked strings and such
 * keys marked; a reviver turns both into what they stand for.
 */
import { endOfString, QUOTE } from '../../core/json-text.js';
import { orderedObject } from './ordered-object.js';

/** A float whose value JavaScript takes for a whole number, or infinity. */
export class PythonFloat {
  constructor(readonly value: number) {}
}

/** Called as JSON.parse calls it. */
export type Reviver = (key: string, value: unknown) => unknown;

/** Digits from which on Python refuses to read a whole number. */
const MAX_DIGITS = 4300;

const MINUS = 0x2d;
const DIGIT_0 = 0x30;
const DIGIT_9 = 0x39;

/**
 * What may need care: numbers with a fraction or an exponent, or of more than 15 digits; keys of
 * digits, escaped ones too.
 */
const SUSPECT = /\d[.eE]|\d{16}|\d"\s*:|\\u003\d/;
const WHOLE_NUMBER = /^\d+$/;
const BEFORE_COLON = /\s*:/y;
const NUMBER_END = /[^-+.0-9eE]/g;

/** Private-use characters; the first that the text neither holds nor spells is the mark. */
const FIRST_MARK = 0xe000;
const LAST_MARK = 0xf8ff;

/**
 * `parsed` as Python reads it: whole numbers beyond 2^53 are bigints, floats of whole value
 * `PythonFloat`s, objects with keys of digits `orderedObject`s. The same object when there are none.
 *
 * @param text valid JSON
 * @param parsed what JSON.parse made of it
 * @throws RangeError for whole numbers that Python refuses
 */
export function withPythonValues(text: string, parsed: unknown, revive?: Reviver): unknown {
  if (!SUSPECT.test(text)) return parsed;
  const mark = unusedMark(text);
  const marked = markedText(text, mark);
  if (marked === undefined) return parsed;
  return JSON.parse(marked, function (this: unknown, key, value: unknown) {
    if (typeof value === 'string' && value.startsWith(mark)) return pythonNumber(value.slice(1));
    const own = withoutKeyMarks(value, mark);
    return revive === undefined ? own : revive.call(this, key, own);
  });
}

/** The object of an object with marked keys; any other value as it is. */
function withoutKeyMarks(value: unknown, mark: string): unknown {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return value;
  const entries = Object.entries(value);
  if (!entries.some(([key]) => key.startsWith(mark))) return value;
  return orderedObject(
    entries.map(([key, item]) => [key.startsWith(mark) ? key.slice(1) : key, item] as const),
  );
}

/** The text with numbers and keys marked that need it; undefined: none does. */
function markedText(text: string, mark: string): string | undefined {
  const parts: string[] = [];
  let done = 0;
  let at = 0;
  while (at < text.length) {
    const code = text.charCodeAt(at);
    if (code === QUOTE) {
      const end = endOfString(text, at);
      const key = keyOfDigits(text, at, end);
      if (key !== undefined) {
        parts.push(text.slice(done, at), `"${mark}${key}"`);
        done = end;
      }
      at = end;
    } else if (code === MINUS || (code >= DIGIT_0 && code <= DIGIT_9)) {
      const end = endOfNumber(text, at);
      const literal = text.slice(at, end);
      if (typeof pythonNumber(literal) !== 'number') {
        parts.push(text.slice(done, at), `"${mark}${literal}"`);
        done = end;
      }
      at = end;
    } else at += 1;
  }
  return parts.length === 0 ? undefined : parts.join('') + text.slice(done);
}

/** The digits that the string from `start` to `end` is a key of; undefined: it is none. */
function keyOfDigits(text: string, start: number, end: number): string | undefined {
  BEFORE_COLON.lastIndex = end;
  if (!BEFORE_COLON.test(text)) return undefined;
  const literal = text.slice(start, end);
  const key = literal.includes('\\') ? (JSON.parse(literal) as string) : literal.slice(1, -1);
  return WHOLE_NUMBER.test(key) ? key : undefined;
}

/** A number where JavaScript's value is enough. */
function pythonNumber(literal: string): number | bigint | PythonFloat {
  const value = Number(literal);
  if (/[.eE]/.test(literal)) {
    const isFraction = Number.isFinite(value) && !Number.isInteger(value);
    return isFraction ? value : new PythonFloat(value);
  }
  if (Number.isSafeInteger(value)) return value;
  if (literal.replace('-', '').length > MAX_DIGITS) {
    throw new RangeError(`has a whole number of more than ${MAX_DIGITS} digits`);
  }
  return BigInt(literal);
}

function endOfNumber(text: string, start: number): number {
  NUMBER_END.lastIndex = start;
  return NUMBER_END.exec(text)?.index ?? text.length;
}

function unusedMark(text: string): string {
  const spelled = new Set(text.match(/\\u[ef][\da-f]{3}/gi)?.map((escape) => escape.toLowerCase()));
  for (let code = FIRST_MARK; code <= LAST_MARK; code += 1) {
    const mark = String.fromCharCode(code);
    if (!text.includes(mark) && !spelled.has(`\\u${code.toString(16)}`)) return mark;
  }
  throw new RangeError(
    'holds every private-use character, so what Python reads otherwise cannot be marked',
  );
}
