/**
 * @file Values by key as someone wrote them, before the schema has typed them; and which key a
 * written name means.
 *
 * `-` and `_` are the same in a name. A key appears at most once in one place (file or flags).
 */
import { SpillwayError } from '../../core/errors.js';
import { nearestName } from './nearest-name.js';
import { CONFIG_KEY_NAMES, CONFIG_KEYS } from './schema.js';
import type { ConfigKeyName } from './schema.js';

/** Values of one place, keyed by the schema's spelling. */
export type RawValues = Map<ConfigKeyName, unknown>;

/**
 * The key that `name` means; dashes count as underscores.
 *
 * @throws CONFIG_UNKNOWN_KEY naming the nearest key
 */
export function keyNamed(name: string, place: string): ConfigKeyName {
  const normal = name.replaceAll('-', '_');
  if (Object.hasOwn(CONFIG_KEYS, normal)) return normal as ConfigKeyName;
  const nearest = nearestName(normal.slice(0, 100), CONFIG_KEY_NAMES);
  throw new SpillwayError(
    'CONFIG_UNKNOWN_KEY',
    `unknown key "${name}" in ${place}; did you mean "${nearest}"?`,
    { key: name, nearest },
  );
}

/**
 * Adds a value; null means "not given" and adds nothing.
 *
 * @throws CONFIG_INVALID when `values` already has the key
 */
export function addRawValue(
  values: RawValues,
  key: ConfigKeyName,
  value: unknown,
  place: string,
): void {
  if (value === null || value === undefined) return;
  if (values.has(key)) {
    throw new SpillwayError('CONFIG_INVALID', `${key} is given twice in ${place}; keep one`, {
      key,
    });
  }
  values.set(key, value);
}
