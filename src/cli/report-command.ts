/**
 * @file `spillway report`: a run's folder as one HTML page.
 */

/** What belongs to the command line alone. */
export interface ReportCommandOptions {
  readonly out?: string;
  readonly trace?: string;
}

/** Writes the page of the run in `folder`. @returns what to print */
export async function runReportCommand(
  folder: string,
  { out, trace }: ReportCommandOptions = {},
): Promise<string> {
  const { writeReport } = await import('../report/write-report.js');
  const path = await writeReport({ folder, out, trace });
  return `report written to ${path}`;
}
