/**
 * @file `spillway train`: from arguments to a run, and from Ctrl-C to an orderly stop.
 */
import { SpillwayError } from '../../core/errors.js';
import type { Logger } from '../../core/logger.js';
import { loadConfig, type ConfigInput } from '../config/load-config.js';
import { parseFlags } from '../config/parse-flags.js';
import type { TrainConfig } from '../config/train-config.js';
import { tidyUp } from './abrupt-end.js';
import { DeferredLogger } from './deferred-logger.js';
import { errorFormat, setErrorFormat } from './error-format.js';
import { openLogger, openRunOutput } from './reporters/run-output.js';

/** Exit statuses of a process that a signal ended: 128 + the signal's number. */
const SIGNAL_STATUS = { SIGINT: 130, SIGTERM: 143 } as const;

/** What belongs to the command line alone. */
export interface TrainCommandOptions {
  /** Standard output carries JSON events. */
  readonly json?: boolean;
}

/**
 * Trains as `args` say.
 *
 * The first SIGINT or SIGTERM asks the run to stop after what it is doing; the second ends the
 * process.
 *
 * @returns the exit status
 */
export async function runTrainCommand(
  args: readonly string[],
  { json = false }: TrainCommandOptions = {},
): Promise<number> {
  const { values, positionals } = parseFlags(args);
  if (positionals.length > 1) {
    throw new SpillwayError(
      'USAGE_INVALID',
      `train takes one configuration file, not ${positionals.length}; see spillway train --help`,
      { arguments: positionals },
    );
  }
  const notes = new DeferredLogger();
  const config = await configure({ file: positionals[0], flags: values, logger: notes }, notes);
  const { logFormat, disableTqdm } = config;
  setErrorFormat(json ? 'json' : logFormat);
  // The engine and tfjs load only when a run starts.
  const { runTrain } = await import('../train/run-train.js');
  const output = await openRunOutput({ json, logFormat, disableTqdm });
  const stop = stopOnSignals(output.logger);
  notes.flushTo(output.logger);
  try {
    const { logger, reporter } = output;
    await runTrain(config, { logger, reporter, signal: stop.signal });
  } catch (error) {
    // The run was asked to stop and says so.
    if (!(stop.signal.aborted && isAbort(error, stop.signal))) throw error;
  } finally {
    stop.dispose();
    output.dispose();
  }
  return stop.status();
}

/** Loads the configuration; where it is refused, what was noted before is told first. */
async function configure(input: ConfigInput, notes: DeferredLogger): Promise<TrainConfig> {
  try {
    return await loadConfig(input);
  } catch (error) {
    notes.flushTo(await openLogger(errorFormat()));
    throw error;
  }
}

function isAbort(error: unknown, signal: AbortSignal): boolean {
  return error === signal.reason || (error instanceof Error && error.cause === signal.reason);
}

interface StopOnSignals {
  readonly signal: AbortSignal;
  /** 0, or the status of the signal that came. */
  status(): number;
  dispose(): void;
}

function stopOnSignals(logger: Logger): StopOnSignals {
  const controller = new AbortController();
  let status = 0;
  const onSignal = (name: NodeJS.Signals) => {
    if (controller.signal.aborted) {
      endBy(name);
      return;
    }
    status = SIGNAL_STATUS[name as keyof typeof SIGNAL_STATUS];
    logger.info(`${name}: stopping; once more to end at once`);
    controller.abort();
  };
  const names = Object.keys(SIGNAL_STATUS) as NodeJS.Signals[];
  /** Lets the signal do what it does by itself: an exit would wait for reads that never end. */
  const endBy = (name: NodeJS.Signals): void => {
    tidyUp();
    for (const one of names) process.off(one, onSignal);
    process.kill(process.pid, name);
  };
  for (const name of names) process.on(name, onSignal);
  return {
    signal: controller.signal,
    status: () => status,
    dispose: () => {
      for (const name of names) process.off(name, onSignal);
    },
  };
}
