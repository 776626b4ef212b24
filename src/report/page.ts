/**
 * @file The page of a run: sections in the order in which one asks.
 *
 * Self-contained: its policy forbids every request and every script.
 */
import { formatBytes } from '../../core/bytes.js';
import { LINKS, TIERS } from '../../core/types.js';
import { html, type Filling, type Html } from './html.js';
import { laneTable } from './lane-table.js';
import { lineChart, type Line, type Point } from './line-chart.js';
import type { ReportedRecord, ReportedRun, ReportedSummary } from './read-run.js';
import type { ReportedTrace } from './read-trace.js';
import { byteUnit } from './scale.js';
import { STYLE } from './style.js';
import { timelineChart } from './timeline-chart.js';

/** What a page is made from. */
export interface ReportInput {
  /** As the page calls it. */
  readonly folder: string;
  readonly run: ReportedRun;
  readonly trace: ReportedTrace | undefined;
  /** Where a trace was looked for. */
  readonly tracePath: string;
}

/** The whole page. */
export function renderPage({ folder, run, trace, tracePath }: ReportInput): string {
  const { records, summary } = run;
  const page = html`<!doctype html>
    <html lang="en">
      <head>
        <meta charset="utf-8" />
        <meta
          http-equiv="Content-Security-Policy"
          content="default-src 'none'; style-src 'unsafe-inline'"
        />
        <meta name="viewport" content="width=device-width, initial-scale=1" />
        <title>${folder} - Spillway</title>
        <style>
          ${STYLE}
        </style>
      </head>
      <body>
        <h1>${folder}</h1>
        ${facts(run)}
        <h2>Training</h2>
        ${training(records)}
        <h2>Predicted and measured</h2>
        ${predicted(summary)}
        <h2>A step</h2>
        ${aStep(trace, tracePath)}
        <h2>Bytes held</h2>
        ${held(trace, summary, tracePath)}
      </body>
    </html> `;
  return page.text;
}

function facts({ summary, records, model }: ReportedRun): Html {
  const rows: [string, Filling][] = [];
  for (const [key, name] of MODEL_FACTS) {
    if (model[key] !== undefined) rows.push([name, String(model[key])]);
  }
  if (summary === undefined) {
    const last = records.at(-1)?.step;
    rows.push(['state', 'not finished: there is no summary.json']);
    if (last !== undefined) rows.push(['last step', count(last)]);
  } else {
    rows.push(...summaryFacts(summary));
  }
  return html`<table class="facts">
    ${rows.map(
      ([name, value]) =>
        html`<tr>
          <th scope="row">${name}</th>
          <td>${value}</td>
        </tr>`,
    )}
  </table>`;
}

/** Keys of config.json that say what was trained. */
const MODEL_FACTS = [
  ['model_type', 'model'],
  ['num_hidden_layers', 'layers'],
  ['n_layer', 'layers'],
  ['hidden_size', 'hidden size'],
  ['n_embd', 'hidden size'],
  ['vocab_size', 'vocabulary'],
] as const;

function summaryFacts(summary: ReportedSummary): [string, Filling][] {
  const { eval_loss: evalLoss, best_metric: best, best_model_checkpoint: folder } = summary;
  const rows: [string, Filling][] = [
    ['training loss', decimals(summary.train_loss)],
    ['steps', count(summary.global_step)],
    ['tokens', count(summary.num_tokens)],
    ['wall time', `${decimals(summary.train_runtime)} s`],
    ['peak memory of the process', formatBytes(summary.peak_rss_bytes)],
  ];
  if (evalLoss !== undefined) rows.push(['evaluation loss', decimals(evalLoss)]);
  if (best !== undefined) rows.push(['best evaluation', decimals(best)]);
  if (folder !== undefined) rows.push(['best checkpoint', folder]);
  if (summary.cpu_fallbacks > 0) rows.push(['kernels in JavaScript', count(summary.cpu_fallbacks)]);
  return rows;
}

function training(records: readonly ReportedRecord[]): Filling {
  const loss: Line[] = [
    { name: 'training loss', color: 'a', points: pointsOf(records, 'loss') },
    { name: 'evaluation loss', color: 'b', points: pointsOf(records, 'eval_loss') },
  ];
  const charts = [
    chartOf(
      'Loss',
      loss.filter(({ points }) => points.length > 0),
    ),
    chartOf('Learning rate', [lineOf(records, 'learning_rate', 'learning rate')]),
    chartOf('Gradient norm, before clipping', [lineOf(records, 'grad_norm', 'gradient norm')]),
    chartOf('Seconds per step', [lineOf(records, 'spillway/step_seconds', 'seconds')]),
  ].filter((chart) => chart !== undefined);
  if (charts.length === 0) return html`<p>metrics.jsonl has no line yet.</p>`;
  return html`<div class="charts">${charts}</div>`;
}

function chartOf(title: string, lines: readonly Line[]): Html | undefined {
  return lineChart({ title, xLabel: 'step', lines });
}

function lineOf(records: readonly ReportedRecord[], key: keyof ReportedRecord, name: string): Line {
  return { name, color: 'a', points: pointsOf(records, key) };
}

/** Values of a key by step; null stands for what JSON lacks, and is left out. */
function pointsOf(records: readonly ReportedRecord[], key: keyof ReportedRecord): Point[] {
  return records.flatMap((record) => {
    const y = record[key];
    return typeof y === 'number' ? [{ x: record.step, y }] : [];
  });
}

function predicted(summary: ReportedSummary | undefined): Html {
  if (summary === undefined) {
    return html`<p>A run compares them when it has finished: there is no summary.json.</p>`;
  }
  const {
    planned,
    bytes_moved_per_step: moved,
    peak_bytes: peaks,
    budget_bytes: budgets,
  } = summary;
  const linkRows = LINKS.map((link) => [
    link,
    ...pair(planned?.bytes_per_step[link], moved?.[link]),
    formatBytes(summary.bytes_moved[link]),
  ]);
  const tierRows = TIERS.map((tier) => [
    tier,
    ...pair(planned?.peak_bytes[tier], peaks[tier]),
    formatBytes(budgets[tier]),
  ]);
  const compared = ['predicted', 'measured', 'difference'];
  return html`${table(['bytes per step', ...compared, 'moved in all'], linkRows)}
    ${table(['peak', ...compared, 'budget'], tierRows)}
    <p>
      Bytes per step are means over the steps, loading, evaluations and saving left out; what moved
      in all has them. Pointing at a number shows it in bytes.
    </p>`;
}

/** Cells of what was planned, what was measured, and how far they lie apart. */
function pair(planned: number | undefined, measured: number | undefined): Filling[] {
  const [plan, found] = [bytesCell(planned), bytesCell(measured)];
  if (planned === undefined || measured === undefined) return [plan, found, '-'];
  if (planned === measured) return [plan, found, 'none'];
  const share = planned === 0 ? '' : `, ${(((measured - planned) / planned) * 100).toFixed(2)} %`;
  return [plan, found, `${(measured - planned).toLocaleString('en-US')} B${share}`];
}

function bytesCell(bytes: number | undefined): Filling {
  if (bytes === undefined) return '-';
  return html`<span title="${count(bytes)} bytes">${formatBytes(bytes)}</span>`;
}

function table(head: readonly string[], rows: readonly (readonly Filling[])[]): Html {
  return html`<table>
    <tr>
      ${head.map((name) => html`<th scope="col">${name}</th>`)}
    </tr>
    ${rows.map(
      ([name, ...cells]) =>
        html`<tr>
          <th scope="row">${name}</th>
          ${cells.map((cell) => html`<td>${cell}</td>`)}
        </tr>`,
    )}
  </table>`;
}

function aStep(trace: ReportedTrace | undefined, path: string): Html {
  if (trace === undefined) return noTrace(path);
  return html`${timelineChart(trace)}${laneTable(trace)}`;
}

function noTrace(path: string): Html {
  return html`<p>
    There is no trace of a complete step in ${path}. Train with <code>--trace ${path}</code>, or say
    where the trace is with <code>--trace</code>.
  </p>`;
}

function held(
  trace: ReportedTrace | undefined,
  summary: ReportedSummary | undefined,
  path: string,
): Html {
  if (trace === undefined) return noTrace(path);
  const charts = TIERS.map((tier) => {
    const most = trace.held[tier].reduce((high, { bytes }) => Math.max(high, bytes), 0);
    const unit = byteUnit(most);
    const points = trace.held[tier].map(({ time, bytes }) => ({
      x: time / 1e6,
      y: bytes / unit.bytes,
    }));
    const budget = summary?.budget_bytes[tier];
    return lineChart({
      title: budget === undefined ? tier : `${tier}, budget ${formatBytes(budget)}`,
      xLabel: 'seconds of the trace',
      lines: [{ name: tier, color: 'c', points, stepped: true }],
      y: [0, Math.max(most, 1) / unit.bytes],
      yText: (value) => `${Number(value.toPrecision(4))} ${unit.name}`,
    });
  });
  const steps = [...trace.steps.keys()];
  return html`<div class="charts">${charts.filter((chart) => chart !== undefined)}</div>
    <p>
      Steps ${Math.min(...steps)} to ${Math.max(...steps)}, read whenever an operation ended; within
      one more may be held, and the peaks above know.
    </p>`;
}

function decimals(value: number | null): string {
  return value === null ? 'not a number' : String(Number(value.toPrecision(6)));
}

function count(value: number): string {
  return value.toLocaleString('en-US');
}
