/**
 * @file The key `deepspeed`: a DeepSpeed configuration whose keys are taken as Spillway's own.
 */
import type { Logger } from '../../../core/logger.js';
import { parseJsonObject } from '../parse-json-object.js';
import { readSmallText } from '../read-small-text.js';
import type { ConfigKeyName } from '../schema.js';
import type { ConfigValues } from '../train-config.js';
import { DsMerge, type PlaceOf } from './ds-merge.js';
import { mapBatchSize } from './map-batch-size.js';
import { mapOffload } from './map-offload.js';
import { mapOptimizer } from './map-optimizer.js';
import { dsRefusal, scanDsConfig, type DsScan } from './scan-ds-config.js';

/** Where a trainer's configuration meets DeepSpeed's. */
export interface DsInput {
  /** Of the ds_config.json, relative to the working directory. */
  readonly path: string;
  /** The trainer's, `dtype` already resolved. */
  readonly values: ConfigValues;
  readonly placeOf: PlaceOf;
  /** Is told once, in one line, what was ignored. */
  readonly logger: Logger;
}

/**
 * The trainer's values with those of DeepSpeed's file.
 *
 * @throws CONFIG_NOT_FOUND; CONFIG_INVALID for text that is no JSON object, values that cannot be
 *   had here, and values that differ from the trainer's
 */
export async function applyDsConfig(input: DsInput): Promise<ConfigValues> {
  const { path, logger } = input;
  const text = await readSmallText(path, 'the DeepSpeed configuration');
  const scan = scanDsConfig(parseJsonObject(text, `"${path}"`), path);
  const merge = new DsMerge(path, input.values, input.placeOf);
  mapBatchSize(scan, merge);
  mapOptimizer(scan, merge);
  mapPrecision(scan, merge, input.placeOf);
  const { notes, ignored } = mapOffload(scan, merge);
  for (const note of notes) logger.info(`"${path}": ${note}`);
  const parts = [
    ['ignored', [...scan.ignored, ...ignored]] as const,
    ['unknown', scan.unknown] as const,
  ].flatMap(([word, names]) => (names.length === 0 ? [] : [`${word}: ${listed(names)}`]));
  if (parts.length > 0) logger.warn(`"${path}": ${parts.join('; ')}`);
  return merge.values;
}

/** No configuration of DeepSpeed's has more; another file passed by mistake may. */
const MAX_LISTED = 100;

function listed(names: readonly string[]): string {
  const rest = names.length - MAX_LISTED;
  const text = names.slice(0, MAX_LISTED).join(', ');
  return rest > 0 ? `${text} and ${rest} more` : text;
}

function mapPrecision(scan: DsScan, merge: DsMerge, placeOf: PlaceOf): void {
  const statedBy: ConfigKeyName = placeOf('dtype') !== undefined ? 'dtype' : 'bf16';
  for (const name of ['bf16.enabled', 'bfloat16.enabled']) {
    const enabled = scan.values.get(name);
    if (enabled === undefined) continue;
    if (typeof enabled !== 'boolean') {
      throw dsRefusal(name, enabled, merge.path, 'it is a switch; set it to true or false');
    }
    merge.set('dtype', enabled ? 'bfloat16' : 'float32', name, { statedBy, written: enabled });
  }
}
