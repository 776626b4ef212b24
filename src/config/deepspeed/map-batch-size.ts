/**
 * @file DeepSpeed's three batch sizes: on one device
 * `train_batch_size` = `train_micro_batch_size_per_gpu` × `gradient_accumulation_steps`.
 *
 * As in DeepSpeed, `train_batch_size` gives the factor that nobody gave; without both factors it is
 * one micro-batch. A factor that is "auto" is the trainer's, by default or not.
 */
import { SpillwayError } from '../../../core/errors.js';
import type { ConfigKeyName } from '../schema.js';
import type { DsMerge } from './ds-merge.js';
import { dsRefusal, type DsScan } from './scan-ds-config.js';

const TOTAL = 'train_batch_size';
const MICRO = 'train_micro_batch_size_per_gpu';
const ACCUMULATION = 'gradient_accumulation_steps';

/**
 * Maps the batch sizes.
 *
 * @throws CONFIG_INVALID with the arithmetic, when the product is not `train_batch_size`
 */
export function mapBatchSize(scan: DsScan, merge: DsMerge): void {
  const { values } = scan;
  if (values.has(MICRO)) merge.set('per_device_train_batch_size', values.get(MICRO), MICRO);
  if (values.has(ACCUMULATION)) {
    merge.set('gradient_accumulation_steps', values.get(ACCUMULATION), ACCUMULATION);
  }
  const total = values.get(TOTAL);
  if (total === undefined) return;
  if (typeof total !== 'number' || !Number.isSafeInteger(total) || total < 1) {
    throw dsRefusal(TOTAL, total, merge.path, 'it is a number of rows; give a whole number');
  }
  const isKnown = (key: ConfigKeyName, dsKey: string) => merge.isGiven(key) || scan.auto.has(dsKey);
  const knowsMicro = isKnown('per_device_train_batch_size', MICRO);
  const knowsAccumulation = isKnown('gradient_accumulation_steps', ACCUMULATION);
  const micro = merge.values.per_device_train_batch_size!;
  const accumulation = merge.values.gradient_accumulation_steps!;
  if (knowsMicro && knowsAccumulation) {
    if (micro * accumulation !== total) {
      throw mismatch(
        merge,
        total,
        `per_device_train_batch_size ${micro} × gradient_accumulation_steps ${accumulation} on one device is ${micro * accumulation}`,
      );
    }
  } else if (knowsMicro) {
    if (total % micro !== 0) {
      throw mismatch(merge, total, `is no multiple of per_device_train_batch_size ${micro}`);
    }
    merge.set('gradient_accumulation_steps', total / micro, TOTAL);
  } else if (knowsAccumulation) {
    if (total % accumulation !== 0) {
      throw mismatch(merge, total, `is no multiple of gradient_accumulation_steps ${accumulation}`);
    }
    merge.set('per_device_train_batch_size', total / accumulation, TOTAL);
  } else {
    merge.set('per_device_train_batch_size', total, TOTAL);
  }
}

function mismatch(merge: DsMerge, total: number, fact: string): SpillwayError {
  return new SpillwayError(
    'CONFIG_INVALID',
    `${TOTAL} is ${total} in "${merge.path}", but ${fact}; make them agree, or write "auto" there`,
    { keys: [TOTAL, 'per_device_train_batch_size', 'gradient_accumulation_steps'] },
  );
}
