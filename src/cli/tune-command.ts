/**
 * @file `spillway tune`: measures this machine, so that plans predict by its own figures.
 */
import type { Logger } from '../../core/logger.js';
import { loadConfig } from '../config/load-config.js';
import type { TrainConfig } from '../config/train-config.js';
import { configArguments } from './config-arguments.js';
import { DeferredLogger } from './deferred-logger.js';
import { errorFormat, setErrorFormat } from './error-format.js';
import { openLogger } from './reporters/run-output.js';
import { isAbort, stopOnSignals } from './stop-on-signals.js';
import { renderTuneTable } from './tune-table.js';

/** What belongs to the command line alone. */
export interface TuneCommandOptions {
  /** JSON with stable keys instead of a table. */
  readonly json?: boolean;
}

/**
 * Measures what `args` describe, as `spillway train` takes them; a model and data are not needed.
 *
 * The first SIGINT or SIGTERM ends it in order, the second the process.
 *
 * @returns the exit status; after a signal nothing is printed
 */
export async function runTuneCommand(
  args: readonly string[],
  { json = false }: TuneCommandOptions = {},
): Promise<number> {
  const given = configArguments('tune', args);
  const notes = new DeferredLogger();
  let noteFormat = errorFormat();
  try {
    const config = await loadConfig({
      ...given,
      required: [],
      logger: notes,
    });
    noteFormat = config.logFormat;
    setErrorFormat(json ? 'json' : config.logFormat);
    return await tune(config, notes, json);
  } finally {
    notes.flushTo(await openLogger(noteFormat));
  }
}

async function tune(config: TrainConfig, notes: Logger, json: boolean): Promise<number> {
  // tfjs loads only now.
  const { tuneReport } = await import('../train/tune-report.js');
  const stop = stopOnSignals(await openLogger(config.logFormat));
  try {
    const report = await tuneReport(config, notes, stop.signal);
    const text = json ? JSON.stringify(report, null, 2) : renderTuneTable(report);
    process.stdout.write(`${text}\n`);
  } catch (error) {
    if (!(stop.signal.aborted && isAbort(error, stop.signal))) throw error;
  } finally {
    stop.dispose();
  }
  return stop.status();
}
