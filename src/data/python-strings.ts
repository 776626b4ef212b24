/**
 * @file Python's string methods where the Jinja library's give other text without a word.
 *
 * Its `strip`, `lstrip` and `rstrip` ignore the characters they are given, which templates that cut
 * thinking out of turns rely on. The library does not export its classes, so its string values are
 * taught through a value that it has made; this changes them for the whole process.
 */

import type { RuntimeValue } from './python-text.js';

/** A string at run time. */
interface StringValue {
  readonly value: string;
  readonly builtins: Map<string, object>;
}

type Make = new (value: unknown) => object;

/** What `str.isspace` holds for; `trim` also takes U+FEFF and leaves U+001C to U+001F and U+0085. */
const SPACES =
  '\t\n\v\f\r\x1c\x1d\x1e\x1f \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000';

/** The methods, by name: the text and the first argument → the text. */
const METHODS: Readonly<Record<string, (text: string, argument: unknown) => string>> = {
  strip: (text, characters) => strip(text, characters, true, true),
  lstrip: (text, characters) => strip(text, characters, true, false),
  rstrip: (text, characters) => strip(text, characters, false, true),
  removeprefix: (text, prefix) =>
    typeof prefix === 'string' && text.startsWith(prefix) ? text.slice(prefix.length) : text,
  removesuffix: (text, suffix) =>
    typeof suffix === 'string' && suffix !== '' && text.endsWith(suffix)
      ? text.slice(0, -suffix.length)
      : text,
  capitalize: capitalized,
  title: (text) => text.replaceAll(/\p{L}+/gu, capitalized),
};

/** Makes a function value that gives a text. */
export type MakeTextFunction = (run: (args: readonly RuntimeValue[]) => string) => object;

/**
 * Gives all string values of the library that made `sample` Python's methods.
 *
 * @returns what makes functions for this library
 */
export function teachPythonStrings(sample: unknown): MakeTextFunction {
  const known = sample as StringValue;
  const prototype = Object.getPrototypeOf(known) as object;
  const descriptor = Object.getOwnPropertyDescriptor(prototype, 'builtins');
  const strip = known.builtins.get('strip');
  if (descriptor?.get === undefined || strip === undefined) {
    throw new TypeError('the Jinja library has changed: its strings have no builtins');
  }
  const MakeString = known.constructor as Make;
  const MakeFunction = strip.constructor as Make;
  const makeFunction: MakeTextFunction = (run) =>
    new MakeFunction((args: readonly RuntimeValue[]) => new MakeString(run(args)));
  const taught = new WeakSet<object>();
  Object.defineProperty(prototype, 'builtins', {
    configurable: true,
    get(this: StringValue) {
      const builtins = descriptor.get!.call(this) as Map<string, object>;
      if (taught.has(builtins)) return builtins;
      taught.add(builtins);
      for (const [name, method] of Object.entries(METHODS)) {
        builtins.set(
          name,
          makeFunction((args) => method(this.value, args[0]?.value)),
        );
      }
      return builtins;
    },
  });
  return makeFunction;
}

/**
 * Python's `strip` at the sides that are asked for.
 *
 * @param characters those to take off; no text: what Python calls spaces
 */
export function strip(text: string, characters: unknown, left: boolean, right: boolean): string {
  const set = new Set(typeof characters === 'string' ? characters : SPACES);
  const symbols = Array.from(text);
  let start = 0;
  let end = symbols.length;
  while (left && start < end && set.has(symbols[start]!)) start += 1;
  while (right && end > start && set.has(symbols[end - 1]!)) end -= 1;
  return symbols.slice(start, end).join('');
}

function capitalized(text: string): string {
  const [first = ''] = text;
  return first.toUpperCase() + text.slice(first.length).toLowerCase();
}
