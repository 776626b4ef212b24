// Goal: schedules have the factors of transformers' LambdaLR (fixtures/schedules/make.py).
import { readFileSync } from 'node:fs';

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import {
  LR_SCHEDULE_TYPES,
  lrFactor,
  resolveWarmupSteps,
  type LrSchedule,
} from '../../src/optim/lr-schedule.js';

const fixture = JSON.parse(
  readFileSync(new URL('../../fixtures/schedules/schedules.json', import.meta.url), 'utf8'),
) as {
  readonly schedules: readonly (LrSchedule & { readonly factors: readonly number[] })[];
  readonly warmups: readonly { warmupSteps: number; totalSteps: number; steps: number }[];
};

describe('lrFactor', () => {
  it.each(fixture.schedules)(
    'equals transformers within 1e-12: $type, warm-up $warmupSteps of $totalSteps',
    ({ factors, ...schedule }) => {
      const worst = Math.max(
        ...factors.map((factor, step) => Math.abs(factor - lrFactor(schedule, step))),
      );
      expect(factors.length).toBe(schedule.totalSteps + 3);
      expect(worst).toBeLessThanOrEqual(1e-12);
    },
  );

  it('stays within [0, 1], rises in warm-up and falls from there to the end', () => {
    const schedules = fc.record({
      type: fc.constantFrom(...LR_SCHEDULE_TYPES),
      warmupSteps: fc.nat(50),
      totalSteps: fc.integer({ min: 1, max: 200 }),
    });
    fc.assert(
      fc.property(schedules, fc.nat(220), (schedule, step) => {
        const [now, next] = [lrFactor(schedule, step), lrFactor(schedule, step + 1)];
        expect(now).toBeGreaterThanOrEqual(0);
        expect(now).toBeLessThanOrEqual(1);
        if (step + 1 < schedule.warmupSteps) expect(next).toBeGreaterThan(now);
        const decays = step >= schedule.warmupSteps && step < schedule.totalSteps;
        if (decays) expect(next).toBeLessThanOrEqual(now);
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
