/**
 * @file Bytes: what was predicted to move and to be held beside what was, and what each tier held
 * over time.
 */
import { formatBytes } from '../../core/bytes.js';
import { LINKS, TIERS, type Tier } from '../../core/types.js';
import { html, type Filling, type Html } from './html.js';
import { lineChart, withUnit, type Level } from './line-chart.js';
import type { ReportedSummary } from './read-run.js';
import type { ReportedTrace } from './read-trace.js';
import { byteUnit } from './scale.js';
import { bytesCell, table } from './table.js';
import { count } from './text.js';

/** Budgets farther above what is held than this would flatten it. */
const FAR_ABOVE = 4;

/** Steps whose begins are marked. */
const MOST_MARKS = 12;

/** Predicted and measured bytes. */
export function comparedBytes(summary: ReportedSummary | undefined): Html {
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
    bytesCell(summary.bytes_moved[link]),
  ]);
  const tierRows = TIERS.map((tier) => [
    tier,
    ...pair(planned?.peak_bytes[tier], peaks[tier]),
    bytesCell(budgets[tier]),
  ]);
  const compared = ['predicted', 'measured', 'difference'];
  return html`<div class="side">
      ${table('Bytes per step', ['bytes per step', ...compared, 'moved in all'], linkRows)}
      ${table('Peaks', ['peak', ...compared, 'budget'], tierRows)}
    </div>
    <p class="soft">
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
  return [plan, found, `${count(measured - planned)} B${share}`];
}

/** What each tier held over the traced steps. */
export function heldBytes(trace: ReportedTrace, summary: ReportedSummary | undefined): Html {
  const charts = TIERS.map((tier) => heldChart(tier, trace, summary));
  return html`<div class="charts">${charts.filter((chart) => chart !== undefined)}</div>
    <p class="soft">
      Read whenever an operation or a piece of one ended; the most that the device held since the
      last reading stands between the two. Marks are where steps begin.
    </p>`;
}

function heldChart(
  tier: Tier,
  { held, steps, end, budgets }: ReportedTrace,
  summary: ReportedSummary | undefined,
): Html | undefined {
  const series = held[tier];
  const most = series.columns.reduce((high, column) => Math.max(high, column.high), 0);
  if (most === 0) return undefined;
  const budget = summary?.budget_bytes[tier] ?? budgets[tier];
  const isShown = budget !== undefined && budget <= most * FAR_ABOVE;
  const levels: Level[] = [];
  if (isShown) levels.push({ name: `budget ${formatBytes(budget)}`, value: budget, kind: 'limit' });
  const planned = summary?.planned?.peak_bytes[tier];
  if (planned !== undefined) {
    levels.push({ name: `planned peak ${formatBytes(planned)}`, value: planned, kind: 'plan' });
  }
  const beyond = budget === undefined || isShown ? '' : `, budget ${formatBytes(budget)}`;
  const top = Math.max(most, ...levels.map(({ value }) => value));
  const unit = byteUnit(top);
  return lineChart({
    title: `${tier}${beyond}`,
    xLabel: 'seconds of the trace',
    lines: [
      {
        name: tier,
        color: 'c',
        series: series.scaled(1e-6, 1 / unit.bytes).heldTo(end / 1e6),
        stepped: true,
      },
    ],
    x: [0, end / 1e6],
    y: [0, top / unit.bytes],
    yText: withUnit(unit.name),
    levels: levels.map((level) => ({ ...level, value: level.value / unit.bytes })),
    marks: marksOf(steps),
  });
}

function marksOf(steps: ReportedTrace['steps']): { at: number; name: string }[] {
  if (steps.size > MOST_MARKS) return [];
  return [...steps].map(([step, { start }]) => ({ at: start / 1e6, name: String(step) }));
}
