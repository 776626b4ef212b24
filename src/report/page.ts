/**
 * @file The page of a run: sections in the order in which one asks.
 *
 * Self-contained: its policy forbids every request and every script.
 */
import { formatBytes } from '../../core/bytes.js';
import { comparedBytes, heldBytes } from './bytes-section.js';
import { html, type Filling, type Html } from './html.js';
import type { ReportedRun, ReportedSummary } from './read-run.js';
import type { ReportedTrace } from './read-trace.js';
import { stepSection } from './step-section.js';
import { STYLE } from './style.js';
import { count, decimals, duration, threeDigits } from './text.js';
import { trainingSection } from './training-section.js';

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
  const { metrics, summary } = run;
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
        <main>
          <h1>${folder}</h1>
          ${facts(run)}
          <h2>Training</h2>
          ${trainingSection(metrics)}
          <h2>A step</h2>
          ${trace === undefined ? noTrace(tracePath) : stepSection(trace)}
          <h2>Bytes, predicted and measured</h2>
          ${comparedBytes(summary)}
          ${
            trace === undefined
              ? undefined
              : html`<h2>Bytes held</h2>
                  ${heldBytes(trace, summary)}`
          }
        </main>
      </body>
    </html> `;
  return page.text;
}

function facts(run: ReportedRun): Html {
  const { summary, metrics, model } = run;
  const rows: [string, Filling][] = [];
  for (const [key, name] of MODEL_FACTS) {
    if (model[key] !== undefined) rows.push([name, shortened(String(model[key]))]);
  }
  if (summary === undefined) {
    rows.push(['state', 'not finished: there is no summary.json']);
    if (metrics.lastStep !== undefined) rows.push(['last step', count(metrics.lastStep)]);
  } else {
    rows.push(...summaryFacts(summary));
  }
  if (metrics.tokensPerSecond !== undefined) {
    rows.push(['tokens per second', threeDigits(metrics.tokensPerSecond)]);
  }
  return html`<dl>
    ${rows.map(
      ([name, value]) =>
        html`<div>
          <dt>${name}</dt>
          <dd>${value}</dd>
        </div>`,
    )}
  </dl>`;
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

/** Longest text of a file that is shown. */
const TEXT_LENGTH = 300;

function shortened(text: string): string {
  return text.length > TEXT_LENGTH ? `${text.slice(0, TEXT_LENGTH)}…` : text;
}

function summaryFacts(summary: ReportedSummary): [string, Filling][] {
  const { eval_loss: evalLoss, best_metric: best, best_model_checkpoint: folder } = summary;
  const rows: [string, Filling][] = [
    ['training loss', decimals(summary.train_loss)],
    ['steps', count(summary.global_step)],
    ['tokens', count(summary.num_tokens)],
    ['wall time', duration(summary.train_runtime * 1e6)],
    ['peak memory of the process', formatBytes(summary.peak_rss_bytes)],
  ];
  if (evalLoss !== undefined) rows.push(['evaluation loss', decimals(evalLoss)]);
  if (best !== undefined) rows.push(['best evaluation', decimals(best)]);
  if (folder !== undefined) rows.push(['best checkpoint', shortened(folder)]);
  if (summary.cpu_fallbacks > 0) rows.push(['kernels in JavaScript', count(summary.cpu_fallbacks)]);
  return rows;
}

function noTrace(path: string): Html {
  return html`<p>
    There is no trace of a complete step in ${path}. Train with <code>--trace ${path}</code> to see
    what each lane did, what compute waited for, what was predicted and what each tier held; or say
    where the trace is with <code>--trace</code>.
  </p>`;
}
