/**
 * @file By which costs a traced run is predicted: this machine's as far as `spillway tune` measured
 * them, as slow as the run's throttles make it.
 */
import { formatError } from '../../../core/errors.js';
import type { Logger } from '../../../core/logger.js';
import { LINKS, type Link } from '../../../core/types.js';
import type { TrainConfig } from '../../config/train-config.js';
import { knownCosts } from '../../engine/calibrate/cost-store.js';
import type { Engine } from '../../engine/engine.js';
import { defaultCosts } from '../../engine/forecast-training.js';
import type { Throttles } from '../../engine/link-turns.js';
import type { LinkCost, MachineCosts } from '../../plan/costs.js';
import { engineOptionsOf } from '../engine-options-of.js';

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
    return { machine: throttled(costs, throttles), defaults: missing };
  } catch (error) {
    logger.warn(`the trace predicts by default costs: ${formatError(error)}`);
    return { machine: throttled(defaults, throttles), defaults: ['all'] };
  }
}

/** The same machine with slower links. */
export function throttled(machine: MachineCosts, throttles: Throttles): MachineCosts {
  const links = LINKS.map((link): [Link, LinkCost] => {
    const { bytesPerSecond, secondsPerPiece } = machine.links[link];
    const most = throttles[link];
    if (most === undefined) return [link, machine.links[link]];
    return [link, { bytesPerSecond: Math.min(bytesPerSecond, most), secondsPerPiece }];
  });
  return { ...machine, links: Object.fromEntries(links) as Record<Link, LinkCost> };
}
