/**
 * @file From raw values to typed ones: flags override the file, defaults fill what neither gives.
 */
import { parseValue } from './config-key.js';
import type { ConfigKey, KeyTable, ValuesOf } from './config-key.js';
import type { RawValues } from './raw-values.js';

/**
 * Types each value and applies the defaults; a key without value and default stays undefined.
 *
 * @throws CONFIG_INVALID, BYTE_SIZE_INVALID, also for a value in `file` that a flag overrides
 */
export function typeValues<T extends KeyTable>(
  keys: T,
  file: RawValues,
  flags: RawValues,
): ValuesOf<T> {
  const typed = Object.entries(keys).map(([name, key]) => {
    const inFile = file.has(name) ? parseValue(name, key, file.get(name)) : defaultOf(name, key);
    return [name, flags.has(name) ? parseValue(name, key, flags.get(name)) : inFile];
  });
  return Object.fromEntries(typed) as ValuesOf<T>;
}

/** A fallback is written as a person would, so it is parsed as well. */
function defaultOf(name: string, key: ConfigKey<unknown>): unknown {
  return key.fallback === undefined ? undefined : parseValue(name, key, key.fallback);
}
