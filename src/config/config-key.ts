/**
 * @file What the schema knows about one configuration key: spelling, values, default, meaning.
 *
 * Values arrive as strings (flags) or as YAML scalars and lists; the zod schema of a key accepts
 * both and gives the typed value. What a person may write is said once, in `type`, and appears in
 * error messages, in `--help` and in docs/CONFIG.md.
 */
import { z } from 'zod';
import { isCoded, SpillwayError } from '../../core/errors.js';
import { parseByteSize } from '../../core/bytes.js';

/** Whose name and meaning a key has. */
export type KeySource = 'Hugging Face' | 'DeepSpeed' | 'Spillway';

/** One key. `fallback` is undefined when the value is required, optional or found at run time. */
export interface ConfigKey<T> {
  /** `list` keys may be repeated as flags; `boolean` flags need no value. */
  readonly shape: 'scalar' | 'list' | 'boolean';
  readonly schema: z.ZodType<T>;
  /** What is allowed, for people. */
  readonly type: string;
  /** Value as a person would write it, when the key is not given. */
  readonly fallback: string | number | boolean | undefined;
  /** What happens instead, when there is no fallback value. */
  readonly fallbackText: string;
  readonly meaning: string;
  readonly source: KeySource;
  /** Why nothing else is allowed, where people ask. */
  readonly reason?: string;
}

/** Keys by name: what a command or a file may give. */
export type KeyTable = Readonly<Record<string, ConfigKey<unknown>>>;

/** The typed values of a table, before required keys are checked. */
export type ValuesOf<T extends KeyTable> = {
  readonly [K in keyof T]: (T[K] extends ConfigKey<infer V> ? V : never) | undefined;
};

/** The documentation fields of a key. */
export interface KeyText {
  readonly meaning: string;
  readonly source: KeySource;
  readonly fallbackText?: string;
  readonly reason?: string;
}

function keyOf<T>(
  shape: ConfigKey<T>['shape'],
  type: string,
  schema: z.ZodType<T>,
  fallback: ConfigKey<T>['fallback'],
  text: KeyText,
): ConfigKey<T> {
  return { shape, type, schema, fallback, fallbackText: '', ...text };
}

/** Decimal notation only: `Number` alone would also take `0x10`, ` ` and `Infinity`. */
const NUMBER = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i;

const numeric = z.preprocess(
  (value) => (typeof value === 'string' && NUMBER.test(value.trim()) ? Number(value) : value),
  z.number(),
);

/** A free text, not empty; with `fallback` undefined it is required. */
export function textKey(type: string, fallback: string | undefined, text: KeyText) {
  const schema = z.preprocess(
    (value) => (typeof value === 'number' ? String(value) : value),
    z.string().min(1),
  );
  return keyOf('scalar', type, schema, fallback, text);
}

/** A text beside which `true` says something of its own; `false` is the same as no value. */
export function textOrTrueKey(type: string, text: KeyText) {
  const schema = z.preprocess((value) => {
    if (value === true || value === 'True') return 'true';
    return value === false || value === 'false' || value === 'False' ? undefined : value;
  }, z.string().min(1).optional());
  return keyOf('scalar', type, schema, undefined, text);
}

/** One of `values`. */
export function choiceKey<const V extends readonly string[]>(
  values: V,
  fallback: V[number] | undefined,
  text: KeyText,
) {
  return keyOf<V[number]>('scalar', values.join(' | '), z.enum(values), fallback, text);
}

/** A number that satisfies `allows`; `type` says in words what that is. */
export function numberKey(
  type: string,
  allows: (value: number) => boolean,
  fallback: number | undefined,
  text: KeyText,
) {
  return keyOf('scalar', type, numeric.refine(allows), fallback, text);
}

/** A whole number that satisfies `allows`. */
export function wholeKey(
  type: string,
  allows: (value: number) => boolean,
  fallback: number | undefined,
  text: KeyText,
) {
  const whole = (value: number) => Number.isSafeInteger(value) && allows(value);
  return numberKey(type, whole, fallback, text);
}

/** True or false. */
export function booleanKey(fallback: boolean, text: KeyText) {
  const schema = z.preprocess(
    (value) => (value === 'true' ? true : value === 'false' ? false : value),
    z.boolean(),
  );
  return keyOf('boolean', 'true | false', schema, fallback, text);
}

/** One text or several: a YAML list, a repeated flag, or separated by commas. */
export function listKey(type: string, text: KeyText) {
  const split = (value: unknown) => (typeof value === 'string' ? splitList(value) : value);
  const schema = z.preprocess(split, z.array(z.string().min(1)).min(1));
  return keyOf<string[]>('list', type, schema, undefined, text);
}

/** The items of a list written as one text. Items with commas need a YAML list. */
export function splitList(text: string): string[] {
  return text.split(',').map((item) => item.trim());
}

/** A byte size; without `fallback` found at run time when not given. */
export function bytesKey(text: KeyText & { readonly fallbackText: string }, fallback?: string) {
  const schema = z.union([z.string(), z.number()]).transform((value) => parseByteSize(value));
  return keyOf('scalar', 'a byte size: 512MiB, 8GiB, 10GB, 1048576', schema, fallback, text);
}

/** A rate in bytes per second. */
export function rateKey(text: KeyText & { readonly fallbackText: string }) {
  const schema = z
    .union([z.string(), z.number()])
    .transform((value) => parseByteSize(value))
    .refine((rate) => rate > 0);
  return keyOf('scalar', 'bytes per second, more than 0: 500MB, 2GiB', schema, undefined, text);
}

/** The same key, where no value is a value too. */
export function optional<T>(key: ConfigKey<T>): ConfigKey<T | undefined> {
  return key;
}

/**
 * The typed value of `raw` under key `name`.
 *
 * @throws CONFIG_INVALID naming key, value and what is allowed; BYTE_SIZE_INVALID naming the key
 */
export function parseValue<T>(name: string, key: ConfigKey<T>, raw: unknown): T {
  let parsed: z.ZodSafeParseResult<T>;
  try {
    parsed = key.schema.safeParse(raw);
  } catch (error) {
    if (!isCoded(error)) throw error;
    throw new SpillwayError(error.code, `${name}: ${error.message}`, { key: name }, error);
  }
  if (parsed.success) return parsed.data;
  throw new SpillwayError(
    'CONFIG_INVALID',
    `${name} cannot be ${shown(raw)}${key.reason === undefined ? '' : `, for ${key.reason}`}; allowed: ${key.type}`,
    { key: name },
  );
}

/** `value` as JSON on one line, shortened. */
function shown(value: unknown): string {
  if (value instanceof Map) return 'a map';
  const text = typeof value === 'number' ? String(value) : JSON.stringify(value);
  return text.length > 80 ? `${text.slice(0, 77)}...` : text;
}
