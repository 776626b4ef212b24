/**
 * @file The doctor's report as text.
 */
import type { DoctorReport } from './doctor.js';
import { alignColumns } from './text-table.js';

/** One line per check, and one more where something is missing. */
export function renderDoctorTable(report: DoctorReport): string {
  const rows = report.checks.flatMap((check) => {
    const row = [check.ok ? 'ok' : '--', check.name, check.summary];
    return check.cost === null ? [row] : [row, ['', '', `costs: ${check.cost}`]];
  });
  return [`spillway ${report.spillway}`, ...alignColumns(rows)].join('\n');
}
