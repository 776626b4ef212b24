/**
 * @file The plan of a run as text.
 */
import { formatBudget, formatBytes } from '../../core/bytes.js';
import { LANES, LINKS, TIERS, type Lane, type Link, type Tier } from '../../core/types.js';
import { PHASES } from '../plan/step-plan.js';
import type { PlannedRun, PlanReport } from '../train/plan-report.js';
import { formatDuration } from './reporters/format-duration.js';
import { formatCount } from './reporters/event-lines.js';
import { alignColumns, type Alignment } from './text-table.js';

const NUMBERS: readonly Alignment[] = ['left', 'right', 'right', 'right', 'right', 'right'];

const LANE_NAMES: Readonly<Record<Lane, string>> = {
  compute: 'compute',
  upload: 'upload',
  download: 'download',
  nvme_read: 'nvme read',
  nvme_write: 'nvme write',
  update: 'update',
};

/** Totals, bytes per tier, where each state lives, what a step moves and takes, what would help. */
export function renderPlanTable({ report, batchSize, length }: PlannedRun): string {
  const { parameters, state_bytes: stateBytes, order, homes } = report;
  const bytes = (of: Readonly<Record<Tier, number>>, tier: Tier): string => formatBytes(of[tier]);
  const tiers = TIERS.map((tier) => [
    tier,
    bytes(report.peak_bytes, tier),
    bytes(report.budget_bytes, tier),
    formatBudget(report.minimum_budgets[tier]),
  ]);
  const states = Object.entries(homes).map(([state, shares]) => [
    state,
    ...TIERS.map((tier) => `${Math.round(shares[tier] * 100)} %`),
  ]);
  return [
    `${formatCount(parameters)} parameters, training state ${formatBytes(stateBytes)}`,
    `micro-batches of ${batchSize} x ${formatCount(length)} tokens, ${order} order`,
    '',
    ...alignColumns([['tier', 'peak', 'budget', 'smallest together'], ...tiers], NUMBERS),
    '',
    ...alignColumns([['state', ...TIERS], ...states], NUMBERS),
    '',
    ...alignColumns(stepRows(report), NUMBERS),
    '',
    ...stepLines(report),
  ].join('\n');
}

/** Seconds and bytes of a step, by lane. */
function stepRows(report: PlanReport): string[][] {
  const { seconds_per_step: seconds, bytes_per_step: all, bytes_per_step_by_phase: parts } = report;
  const isLink = (lane: Lane): lane is Link => LINKS.some((link) => link === lane);
  const rows = LANES.map((lane) => [
    LANE_NAMES[lane],
    formatSeconds(seconds[lane]),
    ...(isLink(lane)
      ? [formatBytes(all[lane]), ...PHASES.map((phase) => formatBytes(parts[phase][lane]))]
      : []),
  ]);
  return [['step', 'time', 'bytes', ...PHASES], ...rows];
}

function stepLines(report: PlanReport): string[] {
  const { seconds_per_step: seconds, limited_by: limit, costs, drive_life: life } = report;
  const hidden = Math.round(report.hidden_update_share * 100);
  const lines = [
    `a steady step takes ${formatSeconds(seconds.total)}, limited by ${LANE_NAMES[limit]}; ${hidden} % of the update is hidden`,
  ];
  if (report.bytes_per_step.nvme_write > 0) {
    const written = `${Number(report.nvme_tb_written_per_1000_steps.toPrecision(3))} TB written to NVMe per 1,000 steps`;
    lines.push(
      life === undefined
        ? written
        : `${written}; the drive lasts ${formatCount(life.steps)} steps, ${Number(life.days.toPrecision(3))} days`,
    );
  }
  for (const tier of ['device', 'host'] as const) {
    const { budget_bytes: budget, bytes_saved_per_step: saved } = report.larger_budgets[tier];
    const named = (sign: 1 | -1): string =>
      LINKS.filter((link) => saved[link] * sign > 0)
        .map((link) => `${formatBytes(saved[link] * sign)} ${LANE_NAMES[link]}`)
        .join(', ');
    const [fewer, more] = [named(1), named(-1)];
    if (fewer === '') continue;
    const cost = more === '' ? '' : `, and move more: ${more}`;
    lines.push(`${tier}_memory ${formatBudget(budget)} would save per step: ${fewer}${cost}`);
  }
  lines.push(
    costs.measured
      ? 'costs: measured on this machine'
      : `costs: defaults (${costs.defaults.join(', ')}); run spillway tune`,
  );
  return lines;
}

/** As `formatDuration`, and milliseconds below a second. */
function formatSeconds(seconds: number): string {
  return seconds < 1 ? `${Number((seconds * 1000).toPrecision(3))} ms` : formatDuration(seconds);
}
