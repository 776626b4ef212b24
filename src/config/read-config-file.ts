/**
 * @file Reads a YAML (or JSON) configuration file into raw values.
 *
 * Nested maps and dotted keys mean the same: `offload_param: {device: cpu}` and
 * `offload_param.device: cpu`.
 */
import { open } from 'node:fs/promises';
import { parseDocument } from 'yaml';
import { SpillwayError } from '../../core/errors.js';
import { addRawValue, keyNamed } from './raw-values.js';
import type { RawValues } from './raw-values.js';
import { CONFIG_KEY_NAMES } from './schema.js';

/** A configuration has a few dozen lines; more is another file passed by mistake. */
const MAX_FILE_BYTES = 1 << 20;

/** Keys that exist only as a prefix of others (`offload_param`). */
const GROUPS = new Set(
  CONFIG_KEY_NAMES.filter((name) => name.includes('.')).map((name) => name.split('.')[0]!),
);

/**
 * The values in the file at `path`.
 *
 * @throws CONFIG_NOT_FOUND when it cannot be read; CONFIG_INVALID when it is no YAML map or gives
 *   a key twice; CONFIG_UNKNOWN_KEY
 */
export async function readConfigFile(path: string): Promise<RawValues> {
  return parseConfigText(await readText(path), path);
}

/** The same for a text; `path` is for messages. */
export function parseConfigText(text: string, path: string): RawValues {
  const values: RawValues = new Map();
  for (const [name, value] of parseMap(text, path)) addValue(values, String(name), value, path);
  return values;
}

async function readText(path: string): Promise<string> {
  try {
    const file = await open(path, 'r');
    try {
      const { size } = await file.stat();
      if (size > MAX_FILE_BYTES) {
        throw invalid(path, `has ${size} bytes, more than a configuration can have`);
      }
      return await file.readFile('utf8');
    } finally {
      await file.close();
    }
  } catch (error) {
    if (error instanceof SpillwayError) throw error;
    const code = (error as NodeJS.ErrnoException).code ?? 'unknown';
    throw new SpillwayError(
      'CONFIG_NOT_FOUND',
      `cannot read the configuration file "${path}"; check the path`,
      { path, errno: code },
      error,
    );
  }
}

function parseMap(text: string, path: string): Map<unknown, unknown> {
  const document = parseDocument(text, { prettyErrors: true });
  const [problem] = [...document.errors, ...document.warnings];
  if (problem !== undefined) {
    // The rest of the message draws the offending line.
    const summary = problem.message.split('\n')[0]!.replace(/:$/, '');
    throw invalid(path, `is not valid YAML: ${summary}`, problem);
  }
  let root: unknown;
  try {
    root = document.toJS({ mapAsMap: true });
  } catch (error) {
    throw invalid(path, `is not valid YAML: ${(error as Error).message}`, error);
  }
  if (root === null) return new Map();
  if (!(root instanceof Map)) throw invalid(path, 'is not a map of keys to values');
  return root;
}

function addValue(values: RawValues, name: string, value: unknown, place: string): void {
  const group = name.replaceAll('-', '_');
  if (value instanceof Map && (GROUPS.has(group) || !isKey(group))) {
    if (!GROUPS.has(group)) keyNamed(name, place);
    for (const [inner, innerValue] of value as Map<unknown, unknown>) {
      addRawValue(values, keyNamed(`${name}.${String(inner)}`, place), innerValue, place);
    }
    return;
  }
  addRawValue(values, keyNamed(name, place), value, place);
}

function isKey(name: string): boolean {
  return (CONFIG_KEY_NAMES as readonly string[]).includes(name);
}

function invalid(path: string, message: string, cause?: unknown): SpillwayError {
  return new SpillwayError('CONFIG_INVALID', `"${path}" ${message}`, { path }, cause);
}
