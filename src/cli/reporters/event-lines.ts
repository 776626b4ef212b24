/**
 * @file Events of a run as lines for people, the same with and without a progress bar.
 */
import { basename } from 'node:path';
import { formatBytes } from '../../../core/bytes.js';
import type { MetricsRecord } from '../../train/metrics-file.js';
import type { DataProgress, EvaluationRecord, RunStart } from '../../train/run-reporter.js';
import { formatDuration } from './format-duration.js';

/** What the run works with; up to four lines. */
export function startedLines(start: RunStart): string[] {
  const { device, host, nvme } = start.budgetBytes;
  const evaluation = start.evalRows === 0 ? '' : `, ${formatCount(start.evalRows)} evaluation rows`;
  const lines = [
    `${formatCount(start.parameterCount)} parameters, training state ${formatBytes(start.stateBytes)}; homes: ${start.homes}`,
    `budgets: device ${formatBytes(device)}, host ${formatBytes(host)}, nvme ${formatBytes(nvme)}`,
    `${formatCount(start.rows)} rows, ${formatCount(start.tokens)} tokens${evaluation}, ${start.totalSteps} steps`,
  ];
  if (start.firstStep > 0) lines.push(`resuming after step ${start.firstStep}`);
  return lines;
}

/** `reading the train data: 1,200 rows, 25 %`. */
export function preparingLine(progress: DataProgress): string {
  const percent = progress.bytesTotal === 0 ? 1 : progress.bytesDone / progress.bytesTotal;
  return `reading the ${progress.split} data: ${formatCount(progress.rows)} rows, ${Math.floor(percent * 100)} %`;
}

/** The metrics of one logging step. */
export function loggedLine(record: MetricsRecord, totalSteps: number): string {
  const loss = record.loss.toFixed(4);
  const norm = record.grad_norm.toPrecision(4);
  const rate = record.learning_rate.toExponential(2);
  const seconds = record['spillway/step_seconds'].toFixed(2);
  return `step ${record.step}/${totalSteps}  loss ${loss}  grad_norm ${norm}  lr ${rate}  ${seconds} s/step`;
}

export function evaluatedLine(record: EvaluationRecord): string {
  const loss = record.eval_loss.toFixed(4);
  const perplexity = record.eval_perplexity.toPrecision(4);
  return `evaluation at step ${record.step}  eval_loss ${loss}  perplexity ${perplexity}  ${formatDuration(record.eval_runtime)}`;
}

export function savedLine(folder: string): string {
  return `saved ${folder}`;
}

export function interruptedLine(folder: string, step: number): string {
  return `stopped after step ${step}; saved as ${basename(folder)}`;
}

/** `1,234,567`. */
export function formatCount(count: number): string {
  return count.toLocaleString('en-US');
}
