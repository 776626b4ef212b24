/**
 * @file The text of a progress bar: what fits into the terminal's width, most important first.
 */
import type { Tier } from '../../../core/types.js';
import { TIERS } from '../../../core/types.js';

/** What a bar shows. */
export interface ProgressState {
  /** What is going on, e.g. `train`. */
  readonly label: string;
  readonly done: number;
  readonly total: number;
  /** `12/100`, or whatever counts the work. */
  readonly count: string;
  /** Further fields, the most important first; those that do not fit are left out. */
  readonly fields: readonly string[];
}

/** A bar narrower than this says nothing; one wider than that says no more. */
const BAR_MIN = 10;
const BAR_MAX = 30;

/**
 * One line of at most `columns - 1` characters: a terminal's last column wraps.
 *
 * Where it is narrow the last fields go first; the bar takes what is left; the label goes last.
 */
export function renderProgressLine(state: ProgressState, columns: number): string {
  const room = Math.max(1, columns - 1);
  const share = state.total > 0 ? Math.min(1, Math.max(0, state.done / state.total)) : 0;
  const percent = `${Math.floor(share * 100)}%`.padStart(4);
  const head = `${state.label} ${percent} ${state.count}`;
  if (head.length > room) return `${percent.trimStart()} ${state.count}`.slice(0, room);
  const tail: string[] = [];
  let length = head.length;
  for (const field of state.fields) {
    if (length + 2 + field.length > room) break;
    tail.push(field);
    length += 2 + field.length;
  }
  // The bar stands between percentage and count: ` [####----]`.
  const cells = Math.min(BAR_MAX, room - length - 3);
  const bar = cells < BAR_MIN ? '' : ` [${barCells(share, cells)}]`;
  return [`${state.label} ${percent}${bar} ${state.count}`, ...tail].join('  ');
}

function barCells(share: number, cells: number): string {
  const full = Math.floor(share * cells);
  return '#'.repeat(full) + '-'.repeat(cells - full);
}

/** Units of occupancy. */
const UNITS = [
  ['TiB', 2 ** 40],
  ['GiB', 2 ** 30],
  ['MiB', 2 ** 20],
  ['KiB', 2 ** 10],
] as const;

const SHORT_NAMES = { device: 'dev', host: 'host', nvme: 'nvme' } as const;

/**
 * Held of budget per tier, e.g. `dev 45/48 host 40/48 nvme 0.4/9 GiB`. A tier without budget is
 * left out; tiers of different orders have a unit each.
 */
export function describeOccupancy(
  held: Readonly<Record<Tier, number>>,
  budget: Readonly<Record<Tier, number>>,
): string {
  const parts = TIERS.filter((tier) => budget[tier] > 0).map((tier) => {
    const [unit, bytes] = unitOf(budget[tier]);
    const text = `${SHORT_NAMES[tier]} ${amount(held[tier] / bytes)}/${amount(budget[tier] / bytes)}`;
    return { text, unit };
  });
  return parts
    .map(({ text, unit }, index) => (parts[index + 1]?.unit === unit ? text : `${text} ${unit}`))
    .join(' ');
}

function unitOf(bytes: number): readonly [string, number] {
  return UNITS.find(([, size]) => bytes >= size) ?? ['B', 1];
}

/** At most one decimal, none from ten on. */
function amount(value: number): string {
  return value >= 9.95 ? value.toFixed(0) : String(Number(value.toFixed(1)));
}

/** `12.3k tok/s`; empty when it is unknown. */
export function describeTokenRate(tokensPerSecond: number): string {
  if (!Number.isFinite(tokensPerSecond)) return '';
  if (tokensPerSecond >= 999.5) return `${(tokensPerSecond / 1000).toFixed(1)}k tok/s`;
  return `${tokensPerSecond.toFixed(tokensPerSecond >= 9.95 ? 0 : 1)} tok/s`;
}
