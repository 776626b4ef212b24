/**
 * @file The keys of a configuration that make a schedule, for tests.
 */
import type { TrainConfig } from '../../src/config/train-config.js';
import type { LrScheduleConfig } from '../../src/optim/resolve-lr-schedule.js';

type Kwargs = TrainConfig['lrSchedulerKwargs'];

const NO_KWARGS: Kwargs = {
  minLr: undefined,
  minLrRate: undefined,
  minLrRatio: undefined,
  numCycles: undefined,
  power: undefined,
  lrEnd: undefined,
  timescale: undefined,
  numDecaySteps: undefined,
  numStableSteps: undefined,
  warmupType: undefined,
  decayType: undefined,
};

/** A configuration with the defaults of docs/CONFIG.md, and `changes`. */
export function scheduleConfig(
  changes: Partial<Omit<LrScheduleConfig, 'lrSchedulerKwargs'>> & {
    readonly lrSchedulerKwargs?: Partial<Kwargs>;
  },
): LrScheduleConfig {
  return {
    learningRate: 2e-5,
    lrSchedulerType: 'linear',
    warmupSteps: 0,
    warmupRatio: 0,
    ...changes,
    lrSchedulerKwargs: { ...NO_KWARGS, ...changes.lrSchedulerKwargs },
  };
}

/** Arguments under transformers' names as a configuration holds them. */
export function kwargsOf(named: Readonly<Record<string, number | string>>): Partial<Kwargs> {
  const entries = Object.entries(named).map(([name, value]) => [
    name.replaceAll(/_([a-z])/g, (_, letter: string) => letter.toUpperCase()),
    value,
  ]);
  return Object.fromEntries(entries) as Partial<Kwargs>;
}
