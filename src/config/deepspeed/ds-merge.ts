/**
 * @file The trainer's values, and what a DeepSpeed configuration adds to them key by key.
 *
 * A value that both give must be the same in both. One that only DeepSpeed's file gives replaces
 * the trainer's default.
 */
import { SpillwayError } from '../../../core/errors.js';
import type { ConfigKey } from '../config-key.js';
import { parseValue } from '../config-key.js';
import { CONFIG_KEYS } from '../schema.js';
import type { ConfigKeyName } from '../schema.js';
import type { ConfigValues } from '../train-config.js';

/** Where the trainer gave a key: "on the command line", `in "a file"`; undefined: nowhere. */
export type PlaceOf = (key: ConfigKeyName) => string | undefined;

/** How a message speaks of a value. */
export interface DsWording {
  /** The trainer's key that says the same, where it is not the key itself. */
  readonly statedBy?: ConfigKeyName;
  /** DeepSpeed's value as its file has it. */
  readonly written?: unknown;
}

/** Merges one DeepSpeed configuration; `path` names it in messages. */
export class DsMerge {
  readonly path: string;
  readonly #placeOf: PlaceOf;
  readonly #values: Record<ConfigKeyName, unknown>;
  /** DeepSpeed's key that gave a value, by our key. */
  readonly #givenBy = new Map<ConfigKeyName, string>();

  constructor(path: string, values: ConfigValues, placeOf: PlaceOf) {
    this.path = path;
    this.#placeOf = placeOf;
    this.#values = { ...values };
  }

  /** All values as merged so far. */
  get values(): ConfigValues {
    // Each value was parsed by its own key.
    return this.#values as ConfigValues;
  }

  /** Whether the trainer or DeepSpeed's file gave `key`, rather than a default. */
  isGiven(key: ConfigKeyName): boolean {
    return this.#givenBy.has(key) || this.#placeOf(key) !== undefined;
  }

  /**
   * Takes `raw`, what DeepSpeed's key `dsKey` means, as the value of `key`.
   *
   * @throws CONFIG_INVALID when it is not allowed, or differs from what another place gave
   */
  set(key: ConfigKeyName, raw: unknown, dsKey: string, wording: DsWording = {}): void {
    const { statedBy = key, written = raw } = wording;
    const schema: ConfigKey<unknown> = CONFIG_KEYS[key];
    const value = parseValue(`${dsKey} in "${this.path}"`, schema, raw);
    const earlier = this.#values[key];
    const other = this.#givenBy.get(key);
    const place = this.#placeOf(statedBy);
    // A trainer's auto leaves the choice open.
    if (place !== undefined && earlier !== 'auto' && !isSame(earlier, value)) {
      throw this.#conflict(statedBy, this.#values[statedBy], place, dsKey, written);
    }
    if (other !== undefined && !isSame(earlier, value)) {
      throw this.#conflict(other, earlier, `in "${this.path}"`, dsKey, written);
    }
    this.#values[key] = value;
    this.#givenBy.set(key, dsKey);
  }

  #conflict(key: string, value: unknown, place: string, dsKey: string, written: unknown) {
    return new SpillwayError(
      'CONFIG_INVALID',
      `${key} is ${shown(value)} ${place}, but ${dsKey} is ${shown(written)} in "${this.path}"; make them equal, or write "auto" there`,
      { keys: [key, dsKey] },
    );
  }
}

function shown(value: unknown): string {
  return Array.isArray(value) ? value.join(',') : String(value);
}

/** Lists are equal whatever their order, for they are lists of folders. */
function isSame(a: unknown, b: unknown): boolean {
  if (!Array.isArray(a) || !Array.isArray(b)) return a === b;
  return a.length === b.length && a.every((item) => b.includes(item));
}
