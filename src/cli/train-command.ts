/**
 * @file `spillway train`: from arguments to a run, and from Ctrl-C to an orderly stop.
 */
import { loadConfig, type ConfigInput } from '../config/load-config.js';
import type { TrainConfig } from '../config/train-config.js';
import { configArguments } from './config-arguments.js';
import { DeferredLogger } from './deferred-logger.js';
import { errorFormat, setErrorFormat } from './error-format.js';
import { openLogger, openRunOutput } from './reporters/run-output.js';
import { isAbort, stopOnSignals } from './stop-on-signals.js';

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
  const given = configArguments('train', args);
  const notes = new DeferredLogger();
  const config = await configure({ ...given, logger: notes }, notes);
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
