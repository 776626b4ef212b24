/**
 * @file The plan of a run as text.
 */
import { formatBytes } from '../../core/bytes.js';
import { TIERS, type Tier } from '../../core/types.js';
import type { PlannedRun } from '../train/plan-report.js';
import { formatCount } from './reporters/event-lines.js';
import { alignColumns, type Alignment } from './text-table.js';

const NUMBERS: readonly Alignment[] = ['left', 'right', 'right', 'right'];

/** A line of totals, bytes per tier, and where each state lives. */
export function renderPlanTable({ report, batchSize, length }: PlannedRun): string {
  const { parameters, state_bytes: stateBytes, order, homes } = report;
  const bytes = (of: Readonly<Record<Tier, number>>, tier: Tier): string => formatBytes(of[tier]);
  const tiers = TIERS.map((tier) => [
    tier,
    bytes(report.peak_bytes, tier),
    bytes(report.budget_bytes, tier),
    bytes(report.minimum_budgets, tier),
  ]);
  const states = Object.entries(homes).map(([state, shares]) => [
    state,
    ...TIERS.map((tier) => `${Math.round(shares[tier] * 100)} %`),
  ]);
  return [
    `${formatCount(parameters)} parameters, training state ${formatBytes(stateBytes)}`,
    `micro-batches of ${batchSize} x ${formatCount(length)} tokens, ${order} order`,
    '',
    ...alignColumns([['tier', 'peak', 'budget', 'smallest that works'], ...tiers], NUMBERS),
    '',
    ...alignColumns([['state', ...TIERS], ...states], NUMBERS),
  ].join('\n');
}
