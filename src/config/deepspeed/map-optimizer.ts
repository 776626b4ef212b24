/**
 * @file DeepSpeed's `optimizer`, `scheduler` and `gradient_clipping`.
 *
 * DeepSpeed's Adam decouples weight decay unless `adam_w_mode` is false, and so is AdamW. Of its
 * schedules two have the formula of one of transformers': WarmupLR and WarmupDecayLR with linear
 * warm-up (DeepSpeed's own default is logarithmic). A parameter that is missing is the trainer's.
 */
import { SpillwayError } from '../../../core/errors.js';
import type { ConfigKeyName } from '../schema.js';
import type { DsMerge } from './ds-merge.js';
import { dsRefusal, type DsScan } from './scan-ds-config.js';

const PARAMS = 'optimizer.params';
const SCHEDULE = 'scheduler.params';

/** DeepSpeed's schedules with a counterpart, by name in lower case. */
const SCHEDULES = new Map([
  ['warmuplr', 'constant_with_warmup'],
  ['warmupdecaylr', 'linear'],
]);

const PLAIN: readonly (readonly [string, ConfigKeyName])[] = [
  ['gradient_clipping', 'max_grad_norm'],
  [`${PARAMS}.lr`, 'learning_rate'],
  [`${PARAMS}.eps`, 'adam_epsilon'],
  [`${PARAMS}.weight_decay`, 'weight_decay'],
  [`${SCHEDULE}.warmup_max_lr`, 'learning_rate'],
];

/**
 * Maps optimizer, schedule and clipping.
 *
 * @throws CONFIG_INVALID
 */
export function mapOptimizer(scan: DsScan, merge: DsMerge): void {
  const type = scan.values.get('optimizer.type');
  if (type !== undefined && !isName(type, ['adamw', 'adam'])) {
    const why = 'Spillway has AdamW only; use AdamW';
    throw dsRefusal('optimizer.type', type, merge.path, why);
  }
  for (const [dsKey, key] of PLAIN) {
    if (scan.values.has(dsKey)) merge.set(key, scan.values.get(dsKey), dsKey);
  }
  const betas = scan.values.get(`${PARAMS}.betas`);
  if (betas !== undefined) mapBetas(betas, merge);
  mapSchedule(scan, merge);
}

function isName(value: unknown, names: readonly string[]): boolean {
  return typeof value === 'string' && names.includes(value.toLowerCase());
}

function mapBetas(betas: unknown, merge: DsMerge): void {
  const name = `${PARAMS}.betas`;
  if (!Array.isArray(betas) || betas.length !== 2) {
    throw dsRefusal(name, betas, merge.path, 'AdamW has two; give a list of two numbers');
  }
  const keys = ['adam_beta1', 'adam_beta2'] as const;
  keys.forEach((key, index) => {
    const beta: unknown = betas[index];
    if (beta !== 'auto' && beta !== null) merge.set(key, beta, `${name}[${index}]`);
  });
}

function mapSchedule(scan: DsScan, merge: DsMerge): void {
  const type = scan.values.get('scheduler.type');
  if (type !== undefined) {
    const schedule = typeof type === 'string' ? SCHEDULES.get(type.toLowerCase()) : undefined;
    if (schedule === undefined) {
      const why =
        'no schedule here has its formula; use WarmupLR or WarmupDecayLR, or leave scheduler out and set lr_scheduler_type';
      throw dsRefusal('scheduler.type', type, merge.path, why);
    }
    merge.set('lr_scheduler_type', schedule, 'scheduler.type', { written: type });
  }
  mapWarmup(scan, merge);
  if (type !== undefined) checkWarmupShape(scan, merge);
  checkTotalSteps(scan, merge);
}

function mapWarmup(scan: DsScan, merge: DsMerge): void {
  const name = `${SCHEDULE}.warmup_num_steps`;
  const steps = scan.values.get(name);
  if (steps === undefined) return;
  if (typeof steps !== 'number' || !Number.isSafeInteger(steps) || steps < 0) {
    throw dsRefusal(name, steps, merge.path, 'it is a number of steps; give a whole number');
  }
  const { warmup_ratio: ratio, warmup_steps: own } = merge.values;
  if (own === 0 && ratio !== undefined && ratio > 0) {
    throw new SpillwayError(
      'CONFIG_INVALID',
      `warmup_ratio is ${ratio}, but ${name} is ${steps} in "${merge.path}"; keep one, or write "auto" there`,
      { keys: ['warmup_ratio', name] },
    );
  }
  merge.set('warmup_steps', steps, name);
}

function checkWarmupShape(scan: DsScan, merge: DsMerge): void {
  const name = `${SCHEDULE}.warmup_type`;
  const shape = scan.values.get(name) ?? 'log';
  const { warmup_steps: steps = 0, warmup_ratio: ratio = 0 } = merge.values;
  // Without warm-up the shape of it does not matter.
  if (shape === 'linear' || (shape === 'log' && steps === 0 && ratio === 0)) return;
  const why =
    'warm-up here is linear ("log" is what DeepSpeed does without this key); set it to "linear", or leave scheduler out';
  throw dsRefusal(name, shape, merge.path, why);
}

function checkTotalSteps(scan: DsScan, merge: DsMerge): void {
  const name = `${SCHEDULE}.total_num_steps`;
  const steps = scan.values.get(name);
  const { max_steps: maxSteps } = merge.values;
  if (steps === undefined || steps === maxSteps) return;
  throw new SpillwayError(
    'CONFIG_INVALID',
    `${name} is ${JSON.stringify(steps)} in "${merge.path}", but max_steps is ${maxSteps}; make them equal, or write "auto" there`,
    { keys: ['max_steps', name] },
  );
}
