// Goal: parameters of a schedule are taken, required and refused as transformers does.
import { describe, expect, it } from 'vitest';

import { LR_SCHEDULE_TYPES } from '../../src/config/keys/lr-schedule-types.js';
import { lrFactor, type LrScheduleType } from '../../src/optim/lr-schedule.js';
import { resolveLrSchedule } from '../../src/optim/resolve-lr-schedule.js';
import { kwargsOf, scheduleConfig } from './schedule-config.js';

/** Values that each key allows. */
const VALUES = {
  min_lr: 1e-6,
  min_lr_rate: 0.1,
  min_lr_ratio: 0.1,
  num_cycles: 2,
  power: 2,
  lr_end: 1e-6,
  timescale: 10,
  num_decay_steps: 3,
  num_stable_steps: 3,
  warmup_type: 'cosine',
  decay_type: 'linear',
} as const;

/** Parameters of transformers' schedule functions, `num_warmup_steps` and the like left out. */
const SIGNATURES: Readonly<Record<LrScheduleType, readonly string[]>> = {
  linear: [],
  cosine: ['num_cycles'],
  cosine_with_restarts: ['num_cycles'],
  polynomial: ['lr_end', 'power'],
  constant: [],
  constant_with_warmup: [],
  inverse_sqrt: ['timescale'],
  cosine_with_min_lr: ['num_cycles', 'min_lr', 'min_lr_rate'],
  warmup_stable_decay: [
    'num_decay_steps',
    'num_stable_steps',
    'warmup_type',
    'decay_type',
    'min_lr_ratio',
    'num_cycles',
  ],
};

/** What a schedule cannot be without. */
const REQUIRED: Partial<Record<LrScheduleType, Partial<typeof VALUES>>> = {
  cosine_with_min_lr: { min_lr_rate: 0.1 },
  warmup_stable_decay: { num_decay_steps: 3 },
};

function resolve(type: LrScheduleType, named: Readonly<Record<string, number | string>>) {
  const kwargs = kwargsOf(named);
  return resolveLrSchedule(scheduleConfig({ lrSchedulerType: type, lrSchedulerKwargs: kwargs }), 9);
}

describe.each(LR_SCHEDULE_TYPES)('%s', (type) => {
  it.each(Object.entries(VALUES))('takes %s if transformers does', (name, value) => {
    const isAlternative = type === 'cosine_with_min_lr' && name === 'min_lr';
    const named = { ...(isAlternative ? {} : REQUIRED[type]), [name]: value };
    if (SIGNATURES[type].includes(name)) {
      const needed = isAlternative ? {} : (REQUIRED[type] ?? {});
      const plain = isAlternative ? undefined : resolve(type, needed);
      expect(resolve(type, named)).toMatchObject({ type, totalSteps: 9 });
      // A value that is taken and differs from what stands there has an effect.
      if (plain !== undefined && !(name in needed)) {
        expect(resolve(type, named)).not.toEqual(plain);
      }
      return;
    }
    expect(() => resolve(type, named)).toThrow(
      expect.objectContaining({
        code: 'CONFIG_INVALID',
        message: expect.stringContaining(`lr_scheduler_kwargs.${name} is nothing`) as string,
      }),
    );
  });
});

it.each([
  ['cosine_with_min_lr', {}, /kwargs\.min_lr is required .*min_lr_rate/],
  ['cosine_with_min_lr', { min_lr: 1e-6, min_lr_rate: 0.1 }, /min_lr stands beside .*min_lr_rate/],
  ['warmup_stable_decay', {}, /kwargs\.num_decay_steps is required/],
  ['polynomial', { lr_end: 1 }, /kwargs\.lr_end \(1\) must be below learning_rate/],
] as const)('%s with %o is refused', (type, named, message) => {
  expect(() => resolve(type, named)).toThrow(message);
});

it('refuses a lowest learning rate as a share of nothing', () => {
  const lrSchedulerKwargs = { minLr: 1e-6 };
  const config = scheduleConfig({
    lrSchedulerType: 'cosine_with_min_lr',
    learningRate: 0,
    lrSchedulerKwargs,
  });
  expect(() => resolveLrSchedule(config, 10)).toThrow(/learning_rate 0/);
});

it('takes warmup_ratio where warmup_steps is 0, rounded up', () => {
  const steps = (changes: object) => resolveLrSchedule(scheduleConfig(changes), 15).warmupSteps;
  expect(steps({ warmupRatio: 0.1 })).toBe(2);
  expect(steps({ warmupRatio: 1 })).toBe(15);
  expect(steps({ warmupRatio: 0.5, warmupSteps: 3 })).toBe(3);
  expect(steps({ warmupRatio: 0.5, warmupSteps: 0.2 })).toBe(3);
});

it('ends polynomial at 1e-7 unless told otherwise', () => {
  const config = scheduleConfig({ lrSchedulerType: 'polynomial', learningRate: 1e-4 });
  expect(lrFactor(resolveLrSchedule(config, 10), 10)).toBeCloseTo(1e-3, 15);
});
