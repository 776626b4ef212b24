/**
 * @file From the configuration's keys to a schedule, refusing what transformers refuses.
 */
import { SpillwayError } from '../../core/errors.js';
import type { TrainConfig } from '../config/train-config.js';
import { resolveWarmupSteps, type LrSchedule, type LrScheduleType } from './lr-schedule.js';

type Kwargs = TrainConfig['lrSchedulerKwargs'];

/** The keys of a configuration that make a schedule. */
export type LrScheduleConfig = Pick<
  TrainConfig,
  'learningRate' | 'lrSchedulerType' | 'lrSchedulerKwargs' | 'warmupSteps' | 'warmupRatio'
>;

/** What each schedule takes, as the signatures of transformers' functions say. */
const TAKEN: Readonly<Record<LrScheduleType, readonly (keyof Kwargs)[]>> = {
  linear: [],
  cosine: ['numCycles'],
  cosine_with_restarts: ['numCycles'],
  polynomial: ['lrEnd', 'power'],
  constant: [],
  constant_with_warmup: [],
  inverse_sqrt: ['timescale'],
  cosine_with_min_lr: ['minLr', 'minLrRate', 'numCycles'],
  warmup_stable_decay: [
    'numDecaySteps',
    'numStableSteps',
    'warmupType',
    'decayType',
    'minLrRatio',
    'numCycles',
  ],
};

/** `lr_end` of polynomial where none is given. */
const DEFAULT_LR_END = 1e-7;

/**
 * The schedule of a run of `totalSteps` steps.
 *
 * @throws CONFIG_INVALID naming the key: one that the schedule does not take, one that it misses,
 *   or a learning rate that does not fit
 */
export function resolveLrSchedule(config: LrScheduleConfig, totalSteps: number): LrSchedule {
  const { lrSchedulerType: type, lrSchedulerKwargs: kwargs, warmupSteps, warmupRatio } = config;
  checkTaken(type, kwargs);
  const floor = floorOf(config);
  return {
    type,
    totalSteps,
    warmupSteps:
      warmupSteps > 0
        ? resolveWarmupSteps(warmupSteps, totalSteps)
        : Math.ceil(totalSteps * warmupRatio),
    ...defined('floor', floor),
    ...defined('numCycles', kwargs.numCycles),
    ...defined('power', kwargs.power),
    ...defined('timescale', kwargs.timescale),
    ...defined('decaySteps', kwargs.numDecaySteps),
    ...defined('stableSteps', kwargs.numStableSteps),
    ...defined('warmupShape', kwargs.warmupType),
    ...defined('decayShape', kwargs.decayType),
  };
}

function defined<K extends keyof LrSchedule>(
  name: K,
  value: LrSchedule[K] | undefined,
): Partial<LrSchedule> {
  return value === undefined ? {} : { [name]: value };
}

function checkTaken(type: LrScheduleType, kwargs: Kwargs): void {
  const taken = TAKEN[type];
  for (const name of Object.keys(kwargs) as (keyof Kwargs)[]) {
    if (kwargs[name] === undefined || taken.includes(name)) continue;
    const others = taken.length === 0 ? 'none' : taken.map(keyOf).join(', ');
    throw invalid(name, `is nothing that ${type} takes; leave it out (${type} takes ${others})`);
  }
  if (type === 'warmup_stable_decay' && kwargs.numDecaySteps === undefined) {
    throw invalid('numDecaySteps', `is required by ${type}; give the steps of its decay`);
  }
}

/** `min_lr`, `min_lr_rate`, `min_lr_ratio` or `lr_end` as a share of the learning rate. */
function floorOf(config: LrScheduleConfig): number | undefined {
  const { lrSchedulerType: type, lrSchedulerKwargs: kwargs, learningRate } = config;
  if (type === 'cosine_with_min_lr') {
    if (kwargs.minLr !== undefined && kwargs.minLrRate !== undefined) {
      throw invalid('minLr', `stands beside ${keyOf('minLrRate')}; give one of the two`);
    }
    if (kwargs.minLr === undefined && kwargs.minLrRate === undefined) {
      throw invalid('minLr', `is required by ${type}; give it or ${keyOf('minLrRate')}`);
    }
    if (kwargs.minLr === undefined) return kwargs.minLrRate;
    if (learningRate === 0) {
      throw invalid('minLr', 'cannot be a share of learning_rate 0; raise learning_rate');
    }
    return kwargs.minLr / learningRate;
  }
  if (type === 'polynomial') {
    const lrEnd = kwargs.lrEnd ?? DEFAULT_LR_END;
    if (lrEnd >= learningRate) {
      throw invalid(
        'lrEnd',
        `(${lrEnd}) must be below learning_rate (${learningRate}); lower it or raise learning_rate`,
      );
    }
    return lrEnd / learningRate;
  }
  return kwargs.minLrRatio;
}

function keyOf(name: keyof Kwargs): string {
  const snake = name.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
  return `lr_scheduler_kwargs.${snake}`;
}

function invalid(name: keyof Kwargs, fact: string): SpillwayError {
  const key = keyOf(name);
  return new SpillwayError('CONFIG_INVALID', `${key} ${fact}`, { key });
}
