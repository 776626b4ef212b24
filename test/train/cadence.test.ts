// Goal: runs log, evaluate and save after the steps after which transformers' Trainer does.
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Cadence, type CadenceConfig } from '../../src/train/cadence.js';

const BASE: CadenceConfig = {
  loggingSteps: 10,
  loggingFirstStep: false,
  evalStrategy: 'no',
  evalSteps: undefined,
  saveStrategy: 'no',
  saveSteps: 500,
};

/** One-based steps of a run of `total` for which `happens`. */
function stepsOf(total: number, happens: (step: number) => boolean): number[] {
  return Array.from({ length: total }, (_, index) => index + 1).filter(happens);
}

const cadence = (changes: Partial<CadenceConfig>, total: number, perEpoch = 4): Cadence =>
  new Cadence({ ...BASE, ...changes }, total, perEpoch);

describe('logging', () => {
  it.each([
    [{ loggingSteps: 3 }, [3, 6, 8]],
    [{ loggingSteps: 3, loggingFirstStep: true }, [1, 3, 6, 8]],
    [{ loggingSteps: 100 }, [8]],
  ])('with %o of 8 steps happens at %o', (changes, steps) => {
    const one = cadence(changes, 8);
    expect(stepsOf(8, (step) => one.logsAt(step))).toEqual(steps);
  });
});

describe('evaluating and saving', () => {
  it.each([
    ['no', 2, []],
    ['steps', 2, [2, 4, 6, 8, 9]],
    ['steps', 20, [9]],
    // Of 9 steps, rounded up, as TrainerState.compute_steps does.
    ['steps', 0.5, [5, 9]],
    ['steps', 0.01, [1, 2, 3, 4, 5, 6, 7, 8, 9]],
    // The last epoch is not whole.
    ['epoch', 2, [4, 8, 9]],
  ] as const)('with strategy %s every %d of 9 steps happens at %o', (strategy, every, steps) => {
    const changes = { evalStrategy: strategy, evalSteps: every, saveStrategy: strategy } as const;
    const one = cadence({ ...changes, saveSteps: every }, 9);
    expect(stepsOf(9, (step) => one.evaluatesAt(step))).toEqual(steps);
    expect(stepsOf(9, (step) => one.savesAt(step, false))).toEqual(steps);
  });

  it('evaluates every logging_steps unless told otherwise', () => {
    const one = cadence({ evalStrategy: 'steps', loggingSteps: 4 }, 9);
    expect(stepsOf(9, (step) => one.evaluatesAt(step))).toEqual([4, 8, 9]);
  });

  it('with save_strategy best happens exactly when an evaluation is the best', () => {
    const one = cadence({ saveStrategy: 'best' }, 9);
    expect(stepsOf(9, (step) => one.savesAt(step, step === 3))).toEqual([3]);
  });

  it('always covers the last step and keeps its distance otherwise', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 200 }),
        fc.oneof(
          fc.integer({ min: 1, max: 50 }),
          fc.double({ min: 0.001, max: 0.999, noNaN: true }),
        ),
        (total, saveSteps) => {
          const one = cadence({ saveStrategy: 'steps', saveSteps }, total);
          const steps = stepsOf(total, (step) => one.savesAt(step, false));
          expect(steps.at(-1)).toBe(total);
          const whole = saveSteps < 1 ? Math.ceil(saveSteps * total) : saveSteps;
          steps.slice(0, -1).forEach((step, index) => expect(step).toBe((index + 1) * whole));
        },
      ),
    );
  });
});
