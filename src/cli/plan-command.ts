/**
 * @file `spillway plan`: from a run's arguments to what it would hold where.
 */
import { SpillwayError } from '../../core/errors.js';
import { loadConfig } from '../config/load-config.js';
import { renderPlanTable } from './plan-table.js';
import { openLogger } from './reporters/run-output.js';
import { configArguments } from './config-arguments.js';
import { DeferredLogger } from './deferred-logger.js';
import { errorFormat, setErrorFormat } from './error-format.js';

/** What belongs to the command line alone. */
export interface PlanCommandOptions {
  /** JSON with stable keys instead of a table. */
  readonly json?: boolean;
  /** Terabytes that the drive may be written, as text. */
  readonly drive_tbw?: string;
}

/**
 * Plans the run that `args` describe, as `spillway train` takes them; rows are not needed.
 *
 * @returns what to print
 */
export async function runPlanCommand(
  args: readonly string[],
  { json = false, drive_tbw: driveText }: PlanCommandOptions = {},
): Promise<string> {
  const given = configArguments('plan', args);
  const driveTerabytes = driveText === undefined ? undefined : parseTerabytes(driveText);
  const notes = new DeferredLogger();
  let noteFormat = errorFormat();
  try {
    const config = await loadConfig({
      ...given,
      required: ['model_name_or_path'],
      logger: notes,
    });
    noteFormat = config.logFormat;
    setErrorFormat(json ? 'json' : config.logFormat);
    // tfjs loads only now.
    const { planReport } = await import('../train/plan-report.js');
    const planned = await planReport(config, notes, {
      ...(driveTerabytes !== undefined && { driveTerabytes }),
    });
    return json ? JSON.stringify(planned.report, null, 2) : renderPlanTable(planned);
  } finally {
    notes.flushTo(await openLogger(noteFormat));
  }
}

function parseTerabytes(text: string): number {
  const terabytes = Number(text);
  if (text.trim() !== '' && Number.isFinite(terabytes) && terabytes > 0) return terabytes;
  throw new SpillwayError(
    'USAGE_INVALID',
    `--drive_tbw is "${text}"; give the terabytes of the drive's data sheet, a number above 0`,
  );
}
