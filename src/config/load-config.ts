/**
 * @file From a configuration file and flags to a complete `TrainConfig`. Flags override the file.
 */
import { SpillwayError } from '../../core/errors.js';
import { silentLogger } from '../../core/logger.js';
import type { Logger } from '../../core/logger.js';
import { checkConfig } from './check-config.js';
import { applyDsConfig } from './deepspeed/apply-ds-config.js';
import type { PlaceOf } from './deepspeed/ds-merge.js';
import { FIXED_KEYS, IDLE_KEYS } from './keys/standing-keys.js';
import type { RawValues } from './raw-values.js';
import { readConfigFile } from './read-config-file.js';
import { resolveDtype } from './resolve-dtype.js';
import { resolveBudgets } from './resolve-budgets.js';
import type { BudgetSources } from './resolve-budgets.js';
import { CONFIG_KEYS, REQUIRED_KEYS } from './schema.js';
import type { ConfigKeyName } from './schema.js';
import type { ConfigValues, TrainConfig } from './train-config.js';
import { typeValues } from './type-values.js';

/** Where values come from. */
export interface ConfigInput {
  /** Path of a YAML or JSON file. */
  readonly file?: string | undefined;
  /** Values that override the file's, as parsed by `parseFlags`. */
  readonly flags?: RawValues;
  readonly budgetSources?: BudgetSources;
  /** Keys that must be given; default: those of a training run. */
  readonly required?: readonly ConfigKeyName[];
  /** Notes and warnings, such as keys that are ignored; silent by default. */
  readonly logger?: Logger;
}

/**
 * The configuration of a run.
 *
 * @throws CONFIG_NOT_FOUND, CONFIG_UNKNOWN_KEY, CONFIG_INVALID, BYTE_SIZE_INVALID
 */
export async function loadConfig(input: ConfigInput): Promise<TrainConfig> {
  const none: RawValues = new Map();
  const fromFile = input.file === undefined ? none : await readConfigFile(input.file);
  const flags = input.flags ?? none;
  const logger = input.logger ?? silentLogger;
  checkStanding(fromFile, flags, logger);
  const placeOf: PlaceOf = (key) =>
    flags.has(key) ? 'on the command line' : fromFile.has(key) ? `in "${input.file!}"` : undefined;
  const typed = typeValues(CONFIG_KEYS, fromFile, flags);
  const own = { ...typed, dtype: resolveDtype(typed, (key) => placeOf(key) !== undefined) };
  const values =
    own.deepspeed === undefined
      ? own
      : await applyDsConfig({ path: own.deepspeed, values: own, placeOf, logger });
  checkConfig(values);
  for (const key of input.required ?? REQUIRED_KEYS) {
    if (values[key] === undefined) {
      throw new SpillwayError(
        'CONFIG_INVALID',
        `${key} is required; give it in the file or as --${key}`,
        { key },
      );
    }
  }
  return toTrainConfig(values, input.budgetSources);
}

/** Refuses other values of fixed keys, and names the idle ones. */
function checkStanding(file: RawValues, flags: RawValues, logger: Logger): void {
  typeValues(FIXED_KEYS, file, flags);
  const idle = Object.keys(IDLE_KEYS).filter((name) => file.has(name) || flags.has(name));
  if (idle.length > 0) logger.info(`no effect here: ${idle.join(', ')}`);
}

function toTrainConfig(values: ConfigValues, sources: BudgetSources | undefined): TrainConfig {
  const { nvme_path: nvmePath = [], data_files: dataFiles = [], ...rest } = values;
  const config: Record<string, unknown> = {};
  const groups: Record<string, Record<string, unknown>> = {};
  for (const [name, value] of Object.entries({
    ...rest,
    data_files: dataFiles,
    nvme_path: nvmePath,
  })) {
    const [group, field] = camelCase(name).split('.') as [string, string | undefined];
    const kept = Array.isArray(value) ? Object.freeze([...(value as unknown[])]) : value;
    if (field === undefined) config[group] = kept;
    else (groups[group] ??= {})[field] = kept;
  }
  for (const [group, fields] of Object.entries(groups)) config[group] = Object.freeze(fields);
  // The schema's keys, camelCased, are exactly the fields of TrainConfig; a test compares them.
  return Object.freeze({ ...config, ...resolveBudgets(values, sources) }) as TrainConfig;
}

function camelCase(name: string): string {
  return name.replaceAll(/_([a-z0-9])/g, (_, letter: string) => letter.toUpperCase());
}
