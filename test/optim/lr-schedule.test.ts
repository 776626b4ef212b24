// Goal: schedules have the factors of transformers' functions (fixtures/schedules/make.py).
import { readFileSync } from 'node:fs';

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import { LR_SCHEDULE_TYPES } from '../../src/config/keys/lr-schedule-types.js';
import { lrFactor, resolveWarmupSteps, type LrScheduleType } from '../../src/optim/lr-schedule.js';
import { resolveLrSchedule } from '../../src/optim/resolve-lr-schedule.js';
import { kwargsOf, scheduleConfig } from './schedule-config.js';

interface RecordedSchedule {
  readonly type: LrScheduleType;
  readonly warmupSteps: number;
  readonly totalSteps: number;
  /** Under transformers' names. */
  readonly kwargs: Readonly<Record<string, number | string>>;
  readonly factors: readonly number[];
}

const fixture = JSON.parse(
  readFileSync(new URL('../../fixtures/schedules/schedules.json', import.meta.url), 'utf8'),
) as {
  readonly learningRate: number;
  readonly schedules: readonly RecordedSchedule[];
  readonly warmups: readonly { warmupSteps: number; totalSteps: number; steps: number }[];
};

describe('lrFactor', () => {
  it('is recorded for every schedule over 1,000 steps, with and without warm-up', () => {
    const long = fixture.schedules.filter(({ totalSteps }) => totalSteps === 1000);
    for (const warmup of [0, 100]) {
      const types = long.filter((one) => one.warmupSteps === warmup).map((one) => one.type);
      expect(new Set(types)).toEqual(new Set(LR_SCHEDULE_TYPES));
    }
  });

  it.each(fixture.schedules)(
    'equals transformers within 1e-12: $type, warm-up $warmupSteps of $totalSteps, $kwargs',
    ({ factors, type, warmupSteps, totalSteps, kwargs }) => {
      const config = scheduleConfig({
        learningRate: fixture.learningRate,
        lrSchedulerType: type,
        warmupSteps,
        lrSchedulerKwargs: kwargsOf(kwargs),
      });
      const schedule = resolveLrSchedule(config, totalSteps);
      const worst = Math.max(
        ...factors.map((factor, step) => Math.abs(factor - lrFactor(schedule, step))),
      );
      expect(factors.length).toBeGreaterThanOrEqual(totalSteps);
      expect(worst).toBeLessThanOrEqual(1e-12);
    },
  );

  it('of schedules without waves stays within [0, 1], rises in warm-up and falls to the end', () => {
    const schedules = fc.record({
      type: fc.constantFrom(
        'linear' as const,
        'cosine' as const,
        'polynomial' as const,
        'inverse_sqrt' as const,
        'warmup_stable_decay' as const,
      ),
      warmupSteps: fc.nat(50),
      totalSteps: fc.integer({ min: 1, max: 200 }),
      decaySteps: fc.nat(40),
      floor: fc.double({ min: 0, max: 1, noNaN: true }),
    });
    fc.assert(
      fc.property(schedules, fc.nat(220), (schedule, step) => {
        const [now, next] = [lrFactor(schedule, step), lrFactor(schedule, step + 1)];
        expect(now).toBeGreaterThanOrEqual(0);
        expect(now).toBeLessThanOrEqual(1 + 1e-15);
        // With a floor, the rise of warmup_stable_decay may be lost in rounding.
        if (step + 1 < schedule.warmupSteps) expect(next).toBeGreaterThanOrEqual(now);
        const decays = step >= schedule.warmupSteps && step < schedule.totalSteps;
        if (decays) expect(next).toBeLessThanOrEqual(now + 1e-15);
      }),
    );
  });
});

describe('resolveWarmupSteps', () => {
  it.each(fixture.warmups)(
    'takes $warmupSteps of $totalSteps steps as transformers does',
    ({ warmupSteps, totalSteps, steps }) => {
      expect(resolveWarmupSteps(warmupSteps, totalSteps)).toBe(steps);
    },
  );
});
