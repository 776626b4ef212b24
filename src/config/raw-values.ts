/**
 * @file Values by key as someone wrote them, before the schema has typed them; and which key a
 * written name means.
 *
 * `-` and `_` are the same in a name. A key appears at most once in one place (file or flags).
 * Keys with a dot form a group: `offload_param: {device: cpu}` and `offload_param.device: cpu` mean
 * the same, and so does the group as a JSON text, which is how a command line writes one.
 */
import { SpillwayError } from '../../core/errors.js';
import type { KeyTable } from './config-key.js';
import { foreignKey } from './foreign-keys.js';
import { nearestName } from './nearest-name.js';
import { parseJsonObject } from './parse-json-object.js';

/** Values of one place, keyed by the schema's spelling. */
export type RawValues = Map<string, unknown>;

/** Names longer than any key are cut before they are compared with all keys. */
const MAX_COMPARED_LENGTH = 100;

/**
 * The key that `name` means; dashes count as underscores.
 *
 * @throws CONFIG_UNKNOWN_KEY naming the key that does the same, or the nearest one
 */
export function keyNamed(name: string, place: string, keys: KeyTable): string {
  const normal = name.replaceAll('-', '_');
  if (Object.hasOwn(keys, normal)) return normal;
  const foreign = foreignKey(normal);
  if (foreign?.kind === 'absent') {
    throw new SpillwayError(
      'CONFIG_UNKNOWN_KEY',
      `"${name}" in ${place} is not supported: ${foreign.why}; leave it out`,
      { key: name },
    );
  }
  if (foreign !== undefined && Object.hasOwn(keys, foreign.to)) {
    throw new SpillwayError(
      'CONFIG_UNKNOWN_KEY',
      `unknown key "${name}" in ${place}; use "${foreign.to}"`,
      { key: name, nearest: foreign.to },
    );
  }
  const nearest = nearestName(normal.slice(0, MAX_COMPARED_LENGTH), Object.keys(keys));
  throw new SpillwayError(
    'CONFIG_UNKNOWN_KEY',
    `unknown key "${name}" in ${place}; did you mean "${nearest}"?`,
    { key: name, nearest },
  );
}

/** Whether `name` is only the part before the dot of some keys (`offload_param`). */
export function isGroup(name: string, keys: KeyTable): boolean {
  const prefix = `${name.replaceAll('-', '_')}.`;
  return Object.keys(keys).some((key) => key.startsWith(prefix));
}

/**
 * Adds what `name` holds: the value of a key, or the keys of a group, given as a map or as a JSON
 * text.
 *
 * @throws CONFIG_UNKNOWN_KEY; CONFIG_INVALID when a key is given twice or a group is no map
 */
export function addNamedValue(
  values: RawValues,
  name: string,
  value: unknown,
  place: string,
  keys: KeyTable,
): void {
  const group = isGroup(name, keys);
  const inner = group && typeof value === 'string' ? groupFromText(name, value, place) : value;
  if (inner instanceof Map && (group || !isKey(name, keys))) {
    if (!group) keyNamed(name, place, keys);
    for (const [field, fieldValue] of inner as Map<unknown, unknown>) {
      const key = keyNamed(`${name}.${String(field)}`, place, keys);
      addRawValue(values, key, fieldValue, place);
    }
    return;
  }
  const nothing = inner === null || inner === undefined;
  // `fsdp: null` is how people write that they do not use it.
  if (nothing && (group || foreignKey(name.replaceAll('-', '_')) !== undefined)) return;
  addRawValue(values, keyNamed(name, place, keys), inner, place);
}

/**
 * Adds a value; null means "not given" and adds nothing.
 *
 * @throws CONFIG_INVALID when `values` already has the key
 */
export function addRawValue(values: RawValues, key: string, value: unknown, place: string): void {
  if (value === null || value === undefined) return;
  if (values.has(key)) {
    throw new SpillwayError('CONFIG_INVALID', `${key} is given twice in ${place}; keep one`, {
      key,
    });
  }
  values.set(key, value);
}

function isKey(name: string, keys: KeyTable): boolean {
  return Object.hasOwn(keys, name.replaceAll('-', '_'));
}

function groupFromText(name: string, text: string, place: string): Map<string, unknown> {
  const object = parseJsonObject(text, `${name} in ${place}`);
  return new Map(Object.entries(object));
}
