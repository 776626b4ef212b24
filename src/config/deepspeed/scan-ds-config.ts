/**
 * @file One walk over a DeepSpeed configuration: refuses what it may not say, and sorts the rest
 * into keys to be mapped, ignored keys and unknown keys.
 */
import { SpillwayError } from '../../../core/errors.js';
import { dsRule, isDsSection } from './ds-rules.js';

/** What a DeepSpeed configuration holds, by dotted name. */
export interface DsScan {
  /** Values to be mapped; no null, and no "auto", which means the trainer's value. */
  readonly values: ReadonlyMap<string, unknown>;
  /** Names whose value is "auto". */
  readonly auto: ReadonlySet<string>;
  readonly ignored: readonly string[];
  /** Names that DeepSpeed does not have either, or that are new to it. */
  readonly unknown: readonly string[];
}

/**
 * Sorts the keys of `root`, as parsed from the file at `path`.
 *
 * @throws CONFIG_INVALID for a value that changes the mathematics in a way that is not supported,
 *   or a section that is no object
 */
export function scanDsConfig(root: Readonly<Record<string, unknown>>, path: string): DsScan {
  const values = new Map<string, unknown>();
  const auto = new Set<string>();
  const ignored: string[] = [];
  const unknown: string[] = [];
  const walk = (object: Readonly<Record<string, unknown>>, prefix: string) => {
    for (const [field, value] of Object.entries(object)) {
      const name = `${prefix}${field}`;
      // null is how people leave a key out; an empty section says nothing.
      if (value === null || (isObject(value) && Object.keys(value).length === 0)) continue;
      const rule = dsRule(name);
      if (rule?.kind === 'only') {
        if (!rule.allowed.includes(value)) {
          throw dsRefusal(name, value, path, `${rule.why}; ${remedy(rule.allowed)}`);
        }
      } else if (rule?.kind === 'mapped') {
        if (value === 'auto') auto.add(name);
        else values.set(name, value);
      } else if (rule?.kind === 'ignored') ignored.push(name);
      else if (!isDsSection(name)) unknown.push(name);
      else if (isObject(value)) walk(value, `${name}.`);
      else throw dsRefusal(name, value, path, 'it is a section; give an object');
    }
  };
  walk(root, '');
  return { values, auto, ignored, unknown };
}

/** CONFIG_INVALID about the value of the key `name` in the file at `path`. */
export function dsRefusal(name: string, value: unknown, path: string, why: string): SpillwayError {
  const text = JSON.stringify(value);
  const shown = text.length > 60 ? `${text.slice(0, 57)}...` : text;
  return new SpillwayError(
    'CONFIG_INVALID',
    `${name} in "${path}" cannot be ${shown}, for ${why}`,
    { key: name, path },
  );
}

function remedy(allowed: readonly unknown[]): string {
  const texts = allowed.filter((value) => value !== 'auto').map((value) => String(value));
  return texts.length === 0 ? 'leave it out' : `set it to ${texts.join(' or ')}, or leave it out`;
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
