/**
 * @file Reads a YAML (or JSON) configuration file into raw values.
 *
 * Nested maps and dotted keys mean the same: `offload_param: {device: cpu}` and
 * `offload_param.device: cpu`.
 */
import { parseDocument } from 'yaml';
import { isCoded, SpillwayError } from '../../core/errors.js';
import type { KeyTable } from './config-key.js';
import { addNamedValue } from './raw-values.js';
import type { RawValues } from './raw-values.js';
import { readSmallText } from './read-small-text.js';
import { ACCEPTED_KEYS } from './schema.js';
import { isYamlDeeper } from './yaml-depth.js';

/** Open collections and pairs; keys, groups and lists need about ten. */
const MAX_DEPTH = 64;

/**
 * The values in the file at `path`.
 *
 * @throws CONFIG_NOT_FOUND when it cannot be read; CONFIG_INVALID when it is no YAML map or gives
 *   a key twice; CONFIG_UNKNOWN_KEY
 */
export async function readConfigFile(
  path: string,
  keys: KeyTable = ACCEPTED_KEYS,
): Promise<RawValues> {
  return parseConfigText(await readText(path), path, keys);
}

/** The same for a text; `path` is for messages. */
export function parseConfigText(
  text: string,
  path: string,
  keys: KeyTable = ACCEPTED_KEYS,
): RawValues {
  const values: RawValues = new Map();
  const root = parseMap(text, path);
  if (describesModel(root)) {
    throw invalid(
      path,
      'is the configuration of a model, not of a run; give its folder (to plan, the file will do) as --model_name_or_path',
    );
  }
  for (const [name, value] of root) {
    addNamedValue(values, String(name), value, path, keys);
  }
  return values;
}

async function readText(path: string): Promise<string> {
  try {
    return await readSmallText(path, 'the configuration file');
  } catch (error) {
    if (!isCoded(error) || error.facts?.['errno'] !== 'EISDIR') throw error;
    throw new SpillwayError(
      'CONFIG_NOT_FOUND',
      `"${path}" is a folder, not a configuration file; give a model's folder as --model_name_or_path`,
      { path },
      error,
    );
  }
}

/** Whether it is a config.json. Axolotl's configurations have a `model_type` too. */
function describesModel(root: ReadonlyMap<unknown, unknown>): boolean {
  return root.has('model_type') && !root.has('model_name_or_path') && !root.has('base_model');
}

function parseMap(text: string, path: string): Map<unknown, unknown> {
  if (isYamlDeeper(text, MAX_DEPTH)) throw invalid(path, 'nests deeper than a configuration can');
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

function invalid(path: string, message: string, cause?: unknown): SpillwayError {
  return new SpillwayError('CONFIG_INVALID', `"${path}" ${message}`, { path }, cause);
}
