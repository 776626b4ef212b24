/**
 * @file Command-line flags as raw values: `--key value`, `--key=value`, `--boolean`.
 *
 * A list flag may be repeated; any other may not.
 */
import { SpillwayError } from '../../core/errors.js';
import { splitList } from './config-key.js';
import { addRawValue, keyNamed } from './raw-values.js';
import type { RawValues } from './raw-values.js';
import { CONFIG_KEYS } from './schema.js';
import type { ConfigKeyName } from './schema.js';

/** What a command line holds. */
export interface ParsedFlags {
  readonly values: RawValues;
  /** Arguments that belong to no flag, in order. */
  readonly positionals: readonly string[];
}

const PLACE = 'the command line';

/**
 * Parses arguments.
 *
 * @throws CONFIG_UNKNOWN_KEY; CONFIG_INVALID when a flag has no value or is given twice
 */
export function parseFlags(args: readonly string[]): ParsedFlags {
  const values: RawValues = new Map();
  const lists = new Map<ConfigKeyName, string[]>();
  const positionals: string[] = [];
  let index = 0;
  while (index < args.length) {
    const arg = args[index]!;
    index += 1;
    if (!arg.startsWith('-') || arg === '-') {
      positionals.push(arg);
      continue;
    }
    const [, name, inline] = /^--?([^=]*)(?:=(.*))?$/s.exec(arg)!;
    const key = keyNamed(name!, PLACE);
    const { shape } = CONFIG_KEYS[key];
    let value: string | boolean | undefined = inline;
    if (value === undefined && takesNext(shape, args[index])) {
      value = args[index];
      index += 1;
    }
    if (value === undefined && shape === 'boolean') value = true;
    if (value === undefined) {
      throw new SpillwayError(
        'CONFIG_INVALID',
        `--${key} needs a value: ${CONFIG_KEYS[key].type}`,
        {
          key,
        },
      );
    }
    if (shape === 'list') lists.set(key, [...(lists.get(key) ?? []), ...splitList(String(value))]);
    else addRawValue(values, key, value, PLACE);
  }
  for (const [key, items] of lists) addRawValue(values, key, items, PLACE);
  return { values, positionals };
}

/** Whether the argument after a flag is its value. Numbers may be negative. */
function takesNext(shape: 'scalar' | 'list' | 'boolean', next: string | undefined): boolean {
  if (next === undefined || next.startsWith('--')) return false;
  return shape !== 'boolean' || next === 'true' || next === 'false';
}
