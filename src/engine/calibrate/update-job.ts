/**
 * @file Updates that are measured: AdamW as it runs by default, on states of zeros.
 */
import type { ComputeDtype, StateName } from '../../../core/types.js';
import type { StateLocation } from '../../../tiers/state-location.js';
import { ADAMW_DEFAULTS, adamwScalars } from '../../optim/adamw-options.js';
import type { ShardUpdate } from '../../optim/shard-update.js';

/** States of a shard that trains. */
export function statesOf(dtype: ComputeDtype): StateName[] {
  const low: StateName[] = dtype === 'bfloat16' ? ['master_lo'] : [];
  return ['param', ...low, 'grad', 'exp_avg', 'exp_avg_sq'];
}

/** The update of a shard of `length` elements. */
export function jobOf(
  dtype: ComputeDtype,
  length: number,
  location: (state: StateName) => StateLocation,
): ShardUpdate {
  return {
    length,
    param: location('param'),
    ...(dtype === 'bfloat16' ? { masterLo: location('master_lo') } : {}),
    grad: location('grad'),
    expAvg: location('exp_avg'),
    expAvgSq: location('exp_avg_sq'),
    scalars: adamwScalars(ADAMW_DEFAULTS, { decay: true }, 1, 1e-4, 1),
  };
}
