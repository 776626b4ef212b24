/**
 * @file The doctor's report as text.
 */
import type { DoctorReport } from './doctor.js';

/** One line per check, and one more where something is missing. */
export function renderDoctorTable(report: DoctorReport): string {
  const width = Math.max(...report.checks.map((check) => check.name.length));
  const lines = report.checks.flatMap((check) => {
    const line = `${check.ok ? 'ok  ' : '--  '}${check.name.padEnd(width)}  ${check.summary}`;
    const indent = ' '.repeat(width + 6);
    return check.cost === null ? [line] : [line, `${indent}costs: ${check.cost}`];
  });
  return [`spillway ${report.spillway}`, ...lines].join('\n');
}
