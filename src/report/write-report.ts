/**
 * @file `spillway report`: a run's folder as one HTML page.
 */
import { join } from 'node:path';
import { SpillwayError } from '../../core/errors.js';
import { writeDurableFile } from '../checkpoint/durable-file.js';
import { exists } from '../checkpoint/file-errors.js';
import { renderPage } from './page.js';
import { readRun } from './read-run.js';
import { readTrace } from './read-trace.js';

/** What is read, and where the page goes. */
export interface ReportOptions {
  /** `output_dir` of a run. */
  readonly folder: string;
  /** Default: `report.html` in the folder. */
  readonly out?: string | undefined;
  /** Default: `trace.json` in the folder, where there is one. */
  readonly trace?: string | undefined;
}

/**
 * Writes the page.
 *
 * @returns its path
 * @throws RUN_NOT_FOUND when there is no folder, no such trace, or nothing to report; RUN_CORRUPT for
 *   files that no run wrote; DATA_INVALID; PATH_UNWRITABLE, OUTPUT_FULL, IO_ERROR
 */
export async function writeReport({ folder, out, trace: given }: ReportOptions): Promise<string> {
  const run = await readRun(folder);
  const tracePath = given ?? join(folder, 'trace.json');
  const trace = await readTrace(tracePath);
  if (given !== undefined && trace === undefined) {
    const fact = (await exists(given)) ? 'holds no complete step' : 'is not there';
    throw new SpillwayError(
      'RUN_NOT_FOUND',
      `${given} ${fact}; give the file that train --trace wrote`,
    );
  }
  if (run.metrics.lineCount === 0 && run.summary === undefined && trace === undefined) {
    throw new SpillwayError(
      'RUN_NOT_FOUND',
      `${folder} has neither metrics.jsonl nor summary.json nor trace.json; give the output_dir of a run`,
    );
  }
  const path = out ?? join(folder, 'report.html');
  const page = renderPage({ folder, run, trace, tracePath });
  await writeDurableFile(path, (handle) => handle.writeFile(page));
  return path;
}
