/**
 * @file A step of the trace: its timeline, where its time went, and what was predicted of it.
 */
import { formatBytes } from '../../core/bytes.js';
import { adviceOn, SPENDINGS } from './advice.js';
import { html, type Filling, type Html } from './html.js';
import type { ReportedTrace } from './read-trace.js';
import { px } from './scale.js';
import { accountOf, type LaneAccount, type StepAccount } from './step-account.js';
import { bytesCell, table } from './table.js';
import { count, duration, percent, ratio } from './text.js';
import { timelineChart } from './timeline-chart.js';

/** Waits that are listed. */
const MOST_WAITS = 8;

/** The section. */
export function stepSection(trace: ReportedTrace): Html {
  const account = accountOf(trace);
  const lanes = account.lanes.map(({ lane }) => lane);
  return html`<p>${which(trace)}</p>
    <ul>
      ${adviceOn(account).map((sentence) => html`<li>${sentence}</li>`)}
    </ul>
    ${timelineChart(trace, lanes)}
    <div class="side">
      <div>
        <h3>Where the time went</h3>
        ${spentTable(account)}
      </div>
      <div>
        <h3>Lanes and overlap</h3>
        ${laneTable(account)}
      </div>
    </div>
    <h3>Seconds, predicted and measured</h3>
    ${secondsTable(account)} ${costsNote(trace)}
    <h3>Longest waits of compute</h3>
    ${waitsTable(account)}`;
}

function which({ step, steps, isWhole, range, window }: ReportedTrace): string {
  const numbers = [...steps.keys()].sort((a, b) => a - b);
  const [first, last] = [numbers[0]!, numbers.at(-1)!];
  const span =
    first === last ? `Step ${first} was recorded.` : `Steps ${first} to ${last} were recorded.`;
  if (!isWhole) {
    return `${span} Step ${step} is shown, from its first operation to the end of its backward pass: no step that was followed by another was recorded, so that its update is not seen beside one.`;
  }
  const shown = `Step ${step} is shown, until the next one begins: ${duration(window.end - window.start)}`;
  if (range === undefined || range[0] === range[1]) return `${span} ${shown}.`;
  const [least, most] = range.map(duration);
  return `${span} ${shown}, the median of those that follow another (${least} to ${most}).`;
}

/** The share of each in the step, with a bar. */
function spentTable({ spent, length }: StepAccount): Html {
  const rows = spent.map(({ on, length: time }) => [
    SPENDINGS[on],
    shareBar(time / length, on === 'compute' ? 'a' : 'wait'),
    duration(time),
    percent(time / length),
  ]);
  return table('Where the time went', ['compute', '', 'time', 'of the step'], rows);
}

function shareBar(share: number, name: string): Html {
  return html`<svg class="share" viewBox="0 0 100 10" aria-hidden="true">
    <rect class="${name}" x="0" y="0" width="${px(Math.max(0.5, share * 100))}" height="10" />
  </svg>`;
}

function laneTable({ lanes, length }: StepAccount): Html {
  const rows = lanes.map(({ lane, busy, hidden, kept }) => {
    const isCompute = lane === 'compute';
    return [
      lane,
      duration(busy),
      percent(busy / length),
      isCompute || busy === 0 ? '-' : percent(hidden / busy),
      isCompute ? '-' : duration(kept),
    ];
  });
  const head = ['lane', 'works', 'of the step', 'beside compute', 'compute waits'];
  return table('Lanes and overlap', head, rows);
}

function secondsTable({ lanes, length, predicted }: StepAccount): Html {
  const rows: Filling[][] = lanes.map((lane) => [
    lane.lane,
    ...compared(lane.busy, lane.predicted),
    ...moved(lane),
  ]);
  rows.push(['whole step', ...compared(length, predicted), '', '']);
  const head = ['lane', 'predicted', 'measured', 'measured / predicted', 'bytes', 'rate'];
  return table('Seconds, predicted and measured', head, rows);
}

function compared(measured: number, predicted: number | undefined): Filling[] {
  if (predicted === undefined) return ['-', duration(measured), '-'];
  return [duration(predicted), duration(measured), ratio(measured, predicted)];
}

function moved({ bytes, busy }: LaneAccount): Filling[] {
  if (bytes === 0 || busy === 0) return ['', ''];
  return [bytesCell(bytes), `${formatBytes(bytes / (busy / 1e6))}/s`];
}

function costsNote({ predicted, defaultCosts }: ReportedTrace): Html {
  if (predicted === undefined) {
    return html`<p class="soft">
      The trace has no prediction: the run was killed before it was written.
    </p>`;
  }
  const notes =
    'A predicted transfer is one thin bar, from its begin to its end, on the lane that it shares with the device. Workers read and write the states that they update; that counts as update.';
  if (defaultCosts.length === 0) {
    return html`<p class="soft">
      Costs are those that <code>spillway tune</code> measured. ${notes}
    </p>`;
  }
  return html`<p class="soft">
    Costs of ${defaultCosts.join(', ')} are defaults, not this machine’s:
    <code>spillway tune</code> measures it. ${notes}
  </p>`;
}

function waitsTable({ waits, length }: StepAccount): Html {
  if (waits.length === 0) return html`<p>Compute never stood still.</p>`;
  const rows = waits
    .slice(0, MOST_WAITS)
    .map(({ name, count: times, total, longest }) => [
      name,
      count(times),
      duration(total),
      percent(total / length),
      duration(longest),
    ]);
  const more = waits.length - rows.length;
  const head = ['wait', 'times', 'together', 'of the step', 'longest'];
  const rest = more > 0 ? html`<p class="soft">and ${count(more)} others</p>` : undefined;
  return html`<div class="wide">${table('Longest waits of compute', head, rows)}</div>
    ${rest}`;
}
