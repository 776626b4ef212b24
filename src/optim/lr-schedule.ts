/**
 * @file Learning-rate schedules as pure functions of the step, with Hugging Face's names and
 * formulas (transformers/optimization.py: get_linear_schedule_with_warmup,
 * get_cosine_schedule_with_warmup with num_cycles 0.5).
 *
 * `stepIndex` is zero-based: optimizer step t (one-based) runs at the factor of `t - 1`, as under
 * torch's LambdaLR. With warm-up, step 1 therefore runs at a learning rate of zero.
 */

/** Schedules by Hugging Face's `lr_scheduler_type`. */
export const LR_SCHEDULE_TYPES = ['linear', 'cosine'] as const;

export type LrScheduleType = (typeof LR_SCHEDULE_TYPES)[number];

export interface LrSchedule {
  readonly type: LrScheduleType;
  /** Whole steps of warm-up; see `resolveWarmupSteps`. */
  readonly warmupSteps: number;
  /** Optimizer steps of the whole run. */
  readonly totalSteps: number;
}

/** Factor on the base learning rate at `stepIndex` (zero-based), within [0, 1]. */
export function lrFactor(schedule: LrSchedule, stepIndex: number): number {
  const { type, warmupSteps, totalSteps } = schedule;
  if (stepIndex < warmupSteps) return stepIndex / Math.max(1, warmupSteps);
  const decaySteps = Math.max(1, totalSteps - warmupSteps);
  switch (type) {
    case 'linear':
      return Math.max(0, (totalSteps - stepIndex) / decaySteps);
    case 'cosine': {
      const progress = (stepIndex - warmupSteps) / decaySteps;
      return Math.max(0, 0.5 * (1 + Math.cos(Math.PI * 0.5 * 2 * progress)));
    }
    default:
      return type satisfies never;
  }
}

/**
 * Steps of warm-up meant by `warmup_steps`: a value below 1 is a share of `totalSteps`, rounded
 * up; any other is cut to a whole number (transformers' TrainingArguments.get_warmup_steps).
 */
export function resolveWarmupSteps(warmupSteps: number, totalSteps: number): number {
  return warmupSteps >= 1 ? Math.trunc(warmupSteps) : Math.ceil(totalSteps * warmupSteps);
}
