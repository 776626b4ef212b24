/**
 * @file `spillway tune`: measures this machine, so that plans predict by its own figures.
 */
import { SpillwayError } from '../../core/errors.js';
import { loadConfig } from '../config/load-config.js';
import { parseFlags } from '../config/parse-flags.js';
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
  const { values, positionals } = parseFlags(args);
  if (positionals.length > 1) {
    throw new SpillwayError(
      'USAGE_INVALID',
      `tune takes one configuration file, not ${positionals.length}; see spillway tune --help`,
      { arguments: positionals },
    );
  }
  const notes = new DeferredLogger();
  let noteFormat = errorFormat();
  try {
    const config = await loadConfig({
      file: positionals[0],
      flags: values,
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
