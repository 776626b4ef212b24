/**
 * @file How long each lane worked in a step, how much of it compute hid, and what compute waited for.
 */
import { LANES } from '../../core/types.js';
import { html, type Html } from './html.js';
import { commonLength, gaps, lengthOf, union } from './intervals.js';
import type { ReportedTrace } from './read-trace.js';

/** What a table says of a lane; shares are of the window. */
export interface LaneShare {
  readonly lane: string;
  /** Microseconds in which it worked. */
  readonly busy: number;
  /** Of these, beside compute. */
  readonly hidden: number;
}

/** Shares of all lanes but those that did nothing. */
export function laneShares({ slices }: Pick<ReportedTrace, 'slices'>): LaneShare[] {
  const compute = union(slices.compute);
  return LANES.flatMap((lane) => {
    const covered = union(slices[lane]);
    const busy = lengthOf(covered);
    return busy === 0 ? [] : [{ lane, busy, hidden: commonLength(covered, compute) }];
  });
}

/** The table, and a sentence on stalls. */
export function laneTable(trace: ReportedTrace): Html {
  const { window, slices } = trace;
  const whole = window.end - window.start;
  const still = lengthOf(gaps(window, union(slices.compute)));
  const rows = laneShares(trace).map(({ lane, busy, hidden }) => {
    const beside = lane === 'compute' ? '' : percent(hidden / busy);
    const exposed = lane === 'compute' ? '' : milliseconds(busy - hidden);
    return html`<tr>
      <th scope="row">${lane}</th>
      <td>${milliseconds(busy)}</td>
      <td>${percent(busy / whole)}</td>
      <td>${beside}</td>
      <td>${exposed}</td>
    </tr>`;
  });
  return html`<table>
      <tr>
        <th scope="col">lane</th>
        <th scope="col">works</th>
        <th scope="col">of the step</th>
        <th scope="col">beside compute</th>
        <th scope="col">not hidden</th>
      </tr>
      ${rows}
    </table>
    <p>
      The step takes ${milliseconds(whole)}; compute stands still for ${milliseconds(still)} of it,
      ${percent(still / whole)}.
    </p>`;
}

function milliseconds(microseconds: number): string {
  return `${Number((microseconds / 1000).toPrecision(3))} ms`;
}

function percent(share: number): string {
  return `${Math.round(share * 1000) / 10} %`;
}
