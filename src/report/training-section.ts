/**
 * @file How training went: losses and what belongs to them, by step.
 */
import { html, type Filling, type Html } from './html.js';
import { lineChart, type Line } from './line-chart.js';
import type { Metric, ReportedMetrics } from './read-run.js';
import { count } from './text.js';

/** The section. */
export function trainingSection(metrics: ReportedMetrics): Filling {
  const line = (metric: Metric, name: string, color: Line['color'] = 'a'): Line => ({
    name,
    color,
    series: metrics.series[metric],
  });
  const charts = [
    chartOf('Loss', [line('loss', 'training loss'), line('eval_loss', 'evaluation loss', 'b')]),
    chartOf('Learning rate', [line('learning_rate', 'learning rate')]),
    chartOf('Gradient norm, before clipping', [line('grad_norm', 'gradient norm')]),
    chartOf('Seconds per step', [line('spillway/step_seconds', 'seconds')]),
  ].filter((chart) => chart !== undefined);
  if (metrics.lineCount === 0) return html`<p>metrics.jsonl has no line yet.</p>`;
  return html`${lossless(metrics)}
    <div class="charts">${charts}</div>
    ${thinned(metrics)}`;
}

function chartOf(title: string, lines: readonly Line[]): Html | undefined {
  return lineChart({ title, xLabel: 'step', lines, wholeX: true });
}

function lossless({ lossless: { count: lines, firstStep } }: ReportedMetrics): Filling {
  if (firstStep === undefined) return undefined;
  const times = lines === 1 ? 'once' : `${count(lines)} times, the first`;
  return html`<p>The loss is not a number ${times} at step ${count(firstStep)}.</p>`;
}

function thinned({ series, lineCount }: ReportedMetrics): Filling {
  if (Object.values(series).every(({ isWhole }) => isWhole)) return undefined;
  return html`<p class="soft">
    ${count(lineCount)} lines are drawn as means of neighbours, pale from the least to the greatest.
  </p>`;
}
