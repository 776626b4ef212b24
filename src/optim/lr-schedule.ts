/**
 * @file Learning-rate schedules as pure functions of the step, with Hugging Face's names and
 * formulas (transformers/optimization.py).
 *
 * `stepIndex` is zero-based: optimizer step t (one-based) runs at the factor of `t - 1`, as under
 * torch's LambdaLR. With warm-up, step 1 therefore runs at a learning rate of zero.
 */
import type { LR_SCHEDULE_TYPES, WSD_SHAPES } from '../config/keys/lr-schedule-types.js';

/** Schedules by Hugging Face's `lr_scheduler_type`. */
export type LrScheduleType = (typeof LR_SCHEDULE_TYPES)[number];

/** Shapes of warm-up and decay in warmup_stable_decay. */
export type WsdShape = (typeof WSD_SHAPES)[number];

/** A schedule; `resolveLrSchedule` makes one from configuration keys. */
export interface LrSchedule {
  readonly type: LrScheduleType;
  /** Whole steps of warm-up; see `resolveWarmupSteps`. */
  readonly warmupSteps: number;
  /** Optimizer steps of the whole run. */
  readonly totalSteps: number;
  /**
   * Factor where decay ends, default 0: `min_lr_rate` of cosine_with_min_lr, `min_lr_ratio` of
   * warmup_stable_decay, `lr_end` of polynomial over the learning rate.
   */
  readonly floor?: number;
  /** Waves of a cosine, default 0.5; restarts of cosine_with_restarts, default 1. */
  readonly numCycles?: number;
  /** Exponent of polynomial, default 1. */
  readonly power?: number;
  /** Time scale of inverse_sqrt in steps, default the warm-up steps, else 10,000. */
  readonly timescale?: number;
  /** Steps of decay of warmup_stable_decay, default 0. */
  readonly decaySteps?: number;
  /** Steps at factor 1 of warmup_stable_decay, default what is left of all steps. */
  readonly stableSteps?: number;
  /** Default linear. */
  readonly warmupShape?: WsdShape;
  /** Default cosine. */
  readonly decayShape?: WsdShape;
}

/** Time scale of inverse_sqrt without warm-up. */
const DEFAULT_TIMESCALE = 10_000;

/**
 * Factor on the base learning rate at `stepIndex` (zero-based); at least 0, and at most 1 where
 * `floor` is.
 */
export function lrFactor(schedule: LrSchedule, stepIndex: number): number {
  const { type, warmupSteps, totalSteps, floor = 0 } = schedule;
  if (type === 'constant') return 1;
  if (type === 'warmup_stable_decay') return stableDecayFactor(schedule, stepIndex);
  if (stepIndex < warmupSteps) return stepIndex / Math.max(1, warmupSteps);
  const decaySteps = Math.max(1, totalSteps - warmupSteps);
  const progress = (stepIndex - warmupSteps) / decaySteps;
  switch (type) {
    case 'linear':
      return Math.max(0, (totalSteps - stepIndex) / decaySteps);
    case 'cosine':
    case 'cosine_with_min_lr':
      return Math.max(0, raised(cosineFall(progress, schedule.numCycles), floor));
    case 'cosine_with_restarts': {
      if (progress >= 1) return 0;
      const phase = ((schedule.numCycles ?? 1) * progress) % 1;
      return Math.max(0, 0.5 * (1 + Math.cos(Math.PI * phase)));
    }
    case 'polynomial': {
      if (stepIndex >= totalSteps) return floor;
      return raised((1 - progress) ** (schedule.power ?? 1), floor);
    }
    case 'constant_with_warmup':
      return 1;
    case 'inverse_sqrt': {
      const timescale = schedule.timescale ?? (warmupSteps === 0 ? DEFAULT_TIMESCALE : warmupSteps);
      return 1 / Math.sqrt((stepIndex + timescale - warmupSteps) / timescale);
    }
    default:
      return type satisfies never;
  }
}

function stableDecayFactor(schedule: LrSchedule, stepIndex: number): number {
  const { warmupSteps, totalSteps, floor = 0, decaySteps = 0 } = schedule;
  if (stepIndex < warmupSteps) {
    const rise = riseOf(schedule.warmupShape ?? 'linear', stepIndex / Math.max(1, warmupSteps));
    return Math.max(0, raised(rise, floor));
  }
  const decayStart = warmupSteps + (schedule.stableSteps ?? totalSteps - warmupSteps - decaySteps);
  if (stepIndex < decayStart) return 1;
  if (stepIndex >= decayStart + decaySteps) return floor;
  const progress = (stepIndex - decayStart) / Math.max(1, decaySteps);
  const fall = fallOf(schedule.decayShape ?? 'cosine', progress, schedule.numCycles);
  return Math.max(0, raised(fall, floor));
}

function riseOf(shape: WsdShape, progress: number): number {
  switch (shape) {
    case 'linear':
      return progress;
    case 'cosine':
      return 0.5 * (1 - Math.cos(Math.PI * progress));
    case '1-sqrt':
      return 1 - Math.sqrt(1 - progress);
    default:
      return shape satisfies never;
  }
}

function fallOf(shape: WsdShape, progress: number, numCycles: number | undefined): number {
  switch (shape) {
    case 'linear':
      return 1 - progress;
    case 'cosine':
      return cosineFall(progress, numCycles);
    case '1-sqrt':
      return 1 - Math.sqrt(progress);
    default:
      return shape satisfies never;
  }
}

/** `numCycles` waves from 1, over `progress` from 0 to 1. */
function cosineFall(progress: number, numCycles = 0.5): number {
  return 0.5 * (1 + Math.cos(Math.PI * numCycles * 2 * progress));
}

/** From the range [0, 1] to [floor, 1]. */
function raised(factor: number, floor: number): number {
  return factor * (1 - floor) + floor;
}

/**
 * Steps of warm-up meant by `warmup_steps`: a value below 1 is a share of `totalSteps`, rounded
 * up; any other is cut to a whole number (transformers' TrainingArguments.get_warmup_steps).
 */
export function resolveWarmupSteps(warmupSteps: number, totalSteps: number): number {
  return warmupSteps >= 1 ? Math.trunc(warmupSteps) : Math.ceil(totalSteps * warmupSteps);
}
