/**
 * @file Python's `json.dumps` of the values that a template holds: what `tojson` writes.
 *
 * The library's own writes floats as JavaScript does and sorts keys by the machine's locale.
 */
import { floatText, integerText, type RuntimeValue } from './python-text.js';

/** Keyword arguments of `json.dumps`. */
export interface JsonOptions {
  /** Escapes all but ASCII. */
  readonly ensureAscii: boolean;
  /** What a level is indented by; undefined: all in one line. */
  readonly indent: string | undefined;
  /** Between items, and after keys. */
  readonly separators: readonly [string, string];
  readonly sortKeys: boolean;
}

/** Names of `tojson`'s arguments, in order. */
const PARAMETERS = ['ensure_ascii', 'indent', 'separators', 'sort_keys'];

/** The options that arguments of `tojson` name. @throws TypeError for what Python refuses */
export function jsonOptionsOf(
  positional: readonly RuntimeValue[],
  named: ReadonlyMap<string, RuntimeValue>,
): JsonOptions {
  const given = new Map(named);
  positional.forEach((value, index) => given.set(PARAMETERS[index] ?? String(index), value));
  const unknown = [...given.keys()].find((name) => !PARAMETERS.includes(name));
  if (unknown !== undefined) throw new TypeError(`tojson has no argument ${unknown}`);
  const isTrue = (name: string) => Boolean(given.get(name)?.value);
  const indent = indentOf(given.get('indent'));
  return {
    ensureAscii: isTrue('ensure_ascii'),
    indent,
    separators: separatorsOf(given.get('separators')) ?? [indent === undefined ? ', ' : ',', ': '],
    sortKeys: isTrue('sort_keys'),
  };
}

function indentOf(given: RuntimeValue | undefined): string | undefined {
  if (given === undefined || given.type === 'NullValue') return undefined;
  if (given.type === 'StringValue') return given.value as string;
  if (given.type === 'IntegerValue') return ' '.repeat(Math.max(0, given.value as number));
  throw new TypeError('indent is neither a number nor a text');
}

function separatorsOf(given: RuntimeValue | undefined): readonly [string, string] | undefined {
  if (given === undefined || given.type === 'NullValue') return undefined;
  const parts = Array.isArray(given.value) ? (given.value as readonly RuntimeValue[]) : [];
  const [item, key] = parts;
  if (parts.length !== 2 || item?.type !== 'StringValue' || key?.type !== 'StringValue') {
    throw new TypeError('separators are not two texts');
  }
  return [item.value as string, key.value as string];
}

/** The JSON of a value. @throws TypeError for what has none, undefined among it */
export function pythonJson(value: RuntimeValue, options: JsonOptions, depth = 0): string {
  switch (value.type) {
    case 'StringValue':
      return quoted(value.value as string, options);
    case 'IntegerValue':
      return integerText(value.value as number | bigint);
    case 'FloatValue':
      return jsonFloat(value.value as number);
    case 'BooleanValue':
      return String(value.value);
    case 'NullValue':
      return 'null';
    case 'ArrayValue':
    case 'TupleValue': {
      const items = value.value as readonly RuntimeValue[];
      const parts = items.map((item) => pythonJson(item, options, depth + 1));
      return enclosed('[', parts, ']', options, depth);
    }
    case 'ObjectValue': {
      const entries = [...(value.value as ReadonlyMap<string, RuntimeValue>)];
      if (options.sortKeys) entries.sort(([a], [b]) => byCodePoint(a, b));
      const [, colon] = options.separators;
      const parts = entries.map(
        ([key, item]) => quoted(key, options) + colon + pythonJson(item, options, depth + 1),
      );
      return enclosed('{', parts, '}', options, depth);
    }
    default:
      throw new TypeError(`a ${value.type} has no JSON`);
  }
}

function enclosed(
  open: string,
  parts: readonly string[],
  close: string,
  { indent, separators: [comma] }: JsonOptions,
  depth: number,
): string {
  if (indent === undefined || parts.length === 0) return open + parts.join(comma) + close;
  const outer = `\n${indent.repeat(depth)}`;
  const inner = outer + indent;
  return open + inner + parts.join(comma + inner) + outer + close;
}

function jsonFloat(value: number): string {
  if (Number.isFinite(value)) return floatText(value);
  if (Number.isNaN(value)) return 'NaN';
  return value < 0 ? '-Infinity' : 'Infinity';
}

function quoted(text: string, { ensureAscii }: JsonOptions): string {
  const json = JSON.stringify(text);
  if (!ensureAscii) return json;
  const escape = (unit: string) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`;
  return json.replaceAll(/[\u007f-\uffff]/g, escape);
}

function byCodePoint(a: string, b: string): number {
  return Buffer.compare(Buffer.from(a), Buffer.from(b));
}
