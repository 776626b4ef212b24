/**
 * @file By which costs a traced run is predicted: this machine's as far as `spillway tune` measured
 * them, as slow as the run's throttles make it.
 */
import { formatError } from '../../../core/errors.js';
import type { Logger } from '../../../core/logger.js';
import type { TrainConfig } from '../../config/train-config.js';
import { knownCosts } from '../../engine/calibrate/cost-store.js';
import type { Engine } from '../../engine/engine.js';
import { defaultCosts } from '../../engine/forecast-training.js';
import type { MachineCosts } from '../../plan/costs.js';
import { engineOptionsOf } from '../engine-options-of.js';
import { throttledCosts } from '../throttled-costs.js';

export interface TracedCosts {
  readonly machine: MachineCosts;
  /** Which are defaults rather than this machine's. */
  readonly defaults: readonly string[];
}

/** What is known of the machine that a run trains on; defaults, with a warning, where what was
 * measured cannot be read. */
export async function tracedCosts(
  config: TrainConfig,
  { deviceName, workerCount }: Pick<Engine, 'deviceName' | 'workerCount'>,
  logger: Logger,
): Promise<TracedCosts> {
  const { throttles } = engineOptionsOf(config).execution;
  const defaults = defaultCosts(deviceName);
  const { dtype, nvmePath: nvmePaths } = config;
  const keys = { device: deviceName, workers: workerCount, dtype, nvmePaths };
  try {
    const { costs, missing } = await knownCosts(keys, defaults);
    return { machine: throttledCosts(costs, throttles), defaults: missing };
  } catch (error) {
    logger.warn(`the trace predicts by default costs: ${formatError(error)}`);
    return { machine: throttledCosts(defaults, throttles), defaults: ['all'] };
  }
}
