/**
 * @file `spillway tune`: measures this machine, so that plans predict by its own figures.
 */
import { loadConfig } from '../config/load-config.js';
import { configArguments } from './config-arguments.js';
import { DeferredLogger } from './deferred-logger.js';
import { errorFormat, setErrorFormat } from './error-format.js';
import { openLogger } from './reporters/run-output.js';
import { renderTuneTable } from './tune-table.js';

/** What belongs to the command line alone. */
export interface TuneCommandOptions {
  /** JSON with stable keys instead of a table. */
  readonly json?: boolean;
}

/**
 * Measures what `args` describe, as `spillway train` takes them; a model and data are not needed.
 *
 * @returns what to print
 */
export async function runTuneCommand(
  args: readonly string[],
  { json = false }: TuneCommandOptions = {},
): Promise<string> {
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
    // tfjs loads only now.
    const { tuneReport } = await import('../train/tune-report.js');
    const report = await tuneReport(config, notes);
    return json ? JSON.stringify(report, null, 2) : renderTuneTable(report);
  } finally {
    notes.flushTo(await openLogger(noteFormat));
  }
}
