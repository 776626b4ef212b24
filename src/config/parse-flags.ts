/**
 * @file Command-line flags as raw values: `--key value`, `--key=value`, `--boolean`.
 *
 * A list flag may be repeated; any other may not. `--model` is `--model_name_or_path`. A group of keys
 * is also taken as JSON, as transformers does: `--lr_scheduler_kwargs '{"min_lr": 1e-6}'`.
 */
import { SpillwayError } from '../../core/errors.js';
import type { ConfigKey, KeyTable } from './config-key.js';
import { splitList } from './config-key.js';
import { addNamedValue, addRawValue, isGroup, keyNamed } from './raw-values.js';
import type { RawValues } from './raw-values.js';
import { ACCEPTED_KEYS } from './schema.js';

/** What a command line holds. */
export interface ParsedFlags {
  readonly values: RawValues;
  /** Arguments that belong to no flag, in order. */
  readonly positionals: readonly string[];
}

type Shape = ConfigKey<unknown>['shape'];

const PLACE = 'the command line';

/** Flags that have a short name too. */
const SHORT_NAMES: Readonly<Record<string, string>> = { model: 'model_name_or_path' };

/**
 * Parses arguments.
 *
 * @param keys what the command takes
 * @throws CONFIG_UNKNOWN_KEY; CONFIG_INVALID when a flag has no value or is given twice
 */
export function parseFlags(args: readonly string[], keys: KeyTable = ACCEPTED_KEYS): ParsedFlags {
  const values: RawValues = new Map();
  const lists = new Map<string, string[]>();
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
    const { key, shape, type } = flagNamed(name!, keys);
    let value: string | boolean | undefined = inline;
    if (value === undefined && takesNext(shape, args[index])) {
      value = args[index];
      index += 1;
    }
    if (shape === 'boolean') value = value === undefined ? true : truthOf(value);
    if (value === undefined) {
      throw new SpillwayError('CONFIG_INVALID', `--${key} needs a value: ${type}`, { key });
    }
    if (shape === 'list') lists.set(key, [...(lists.get(key) ?? []), ...splitList(String(value))]);
    else addNamedValue(values, key, value, PLACE, keys);
  }
  for (const [key, items] of lists) addRawValue(values, key, items, PLACE);
  return { values, positionals };
}

interface Flag {
  readonly key: string;
  readonly shape: Shape;
  /** What is allowed, for people. */
  readonly type: string;
}

function flagNamed(name: string, keys: KeyTable): Flag {
  if (isGroup(name, keys)) {
    return { key: name.replaceAll('-', '_'), shape: 'scalar', type: 'a JSON object' };
  }
  const long = SHORT_NAMES[name];
  const key = long !== undefined && Object.hasOwn(keys, long) ? long : keyNamed(name, PLACE, keys);
  return { key, ...keys[key]! };
}

/** Whether the argument after a flag is its value. Numbers may be negative. */
function takesNext(shape: Shape, next: string | undefined): boolean {
  if (next === undefined || next.startsWith('--')) return false;
  return shape !== 'boolean' || isTruth(next);
}

function isTruth(text: string): boolean {
  return /^(true|false)$/.test(truthOf(text));
}

/** Scripts for Hugging Face's parser spell truth as Python does. */
function truthOf(text: string): string {
  return text === 'True' || text === 'False' ? text.toLowerCase() : text;
}
