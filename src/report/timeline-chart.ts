/**
 * @file The timeline of a step: a row per lane, measured above predicted, and a row of what compute
 * waited for.
 */
import type { Lane } from '../../core/types.js';
import { PHASES, type Phase } from '../plan/step-plan.js';
import { html, type Filling, type Html } from './html.js';
import { gaps, union, type Interval } from './intervals.js';
import type { ReportedSlice, ReportedStall, ReportedTrace } from './read-trace.js';
import { linearScale, px, tickTexts, type Scale } from './scale.js';
import { duration } from './text.js';

const WIDTH = 960;
const LEFT = 96;
const RIGHT = WIDTH - 12;
const TOP = 4;
const ROW = 32;
const BAR = 17;
/** Of predicted bars, below the measured ones. */
const THIN = 6;

/** Slices nearer than this become one bar: nothing between them could be seen. */
const SEEN_PX = 0.7;

/** Width of a character of a label, about. */
const LETTER_PX = 6;

/** Slices that are drawn as one. */
interface Bar extends Interval {
  readonly count: number;
  readonly name: string;
}

type At = (time: number) => number;

/** One step, times in milliseconds from its beginning. @param lanes rows, in order */
export function timelineChart(trace: ReportedTrace, lanes: readonly Lane[]): Html {
  const { step, window, slices, stalls, predicted } = trace;
  // Both fit, whichever is longer.
  const length = Math.max(window.end - window.start, predicted?.window.end ?? 0);
  const scale = linearScale([0, length / 1000], [LEFT, RIGHT], { tickCount: 10, ends: false });
  const at: At = (time) => scale.at(time / 1000);
  const own: At = (time) => at(time - window.start);
  const rows: (Lane | 'waits')[] = [
    'compute',
    'waits',
    ...lanes.filter((lane) => lane !== 'compute'),
  ];
  const bottom = TOP + rows.length * ROW;
  const title = `Step ${step}, lane by lane`;
  return html`<figure>
    <figcaption>${title}${legend(predicted !== undefined)}</figcaption>
    <div class="scroll" role="region" aria-label="${title}" tabindex="0">
      <svg
        class="timeline"
        viewBox="0 0 ${WIDTH} ${bottom + 40}"
        role="img"
        aria-label="${title}; the tables that follow hold the same times"
      >
        ${axis(scale, bottom)} ${stillBands(slices.compute, window, bottom, own)}
        ${rows.map((row, index) => {
          const top = TOP + index * ROW;
          if (row === 'waits') return waitsRow(stalls, top, own, length);
          const thin = predicted === undefined ? [] : predicted.slices[row];
          return laneRow(row, top, slices[row], own, thin, at, length);
        })}
        ${endMark(predicted, bottom, at)}
        <text class="x" x="${(LEFT + RIGHT) / 2}" y="${bottom + 36}">milliseconds</text>
      </svg>
    </div>
  </figure>`;
}

function legend(hasPrediction: boolean): Filling {
  return [
    ...PHASES.map((phase) => html` <span class="key ${phase}">${phase}</span>`),
    html` <span class="key wait">compute stands still</span>`,
    hasPrediction ? html` <span class="key thin none">thin: predicted</span>` : undefined,
  ];
}

function axis(scale: Scale, bottom: number): Html[] {
  const text = tickTexts(scale.ticks);
  return scale.ticks.map((tick) => {
    const x = px(scale.at(tick));
    return html`<line class="grid" x1="${x}" x2="${x}" y1="${TOP}" y2="${bottom}" /><text
        class="x"
        x="${x}"
        y="${bottom + 18}"
        >${text(tick)}</text
      >`;
  });
}

/** Behind all lanes: one sees what ran while compute did not. */
function stillBands(
  compute: readonly ReportedSlice[],
  window: Interval,
  bottom: number,
  at: At,
): Html[] {
  return gaps(window, union(compute))
    .filter(({ start, end }) => at(end) - at(start) >= SEEN_PX)
    .map((gap) => rect('stall', gap, TOP, bottom - TOP, at));
}

function waitsRow(stalls: readonly ReportedStall[], top: number, at: At, length: number): Html {
  const bars = barsOf(stalls, length).map((bar) => {
    const what = bar.count === 1 ? bar.name : `${bar.count} waits, the first: ${bar.name}`;
    const drawn = rect('wait', bar, top + 4, BAR, at, `${what}, ${duration(bar.end - bar.start)}`);
    const label = bar.count === 1 ? shortLabel(bar, at(bar.end) - at(bar.start)) : undefined;
    if (label === undefined) return drawn;
    const middle = px((at(bar.start) + at(bar.end)) / 2);
    return html`${drawn}<text class="x wait" x="${middle}" y="${top + 13}">${label}</text>`;
  });
  return html`${rowName('waits for', top)}${bars}`;
}

/** As much of the name as fits: `upload: fetch-params 3`, else `upload`. */
function shortLabel({ name }: Bar, width: number): string | undefined {
  const whole = name.replace(/^waits for /, '');
  const [lane = ''] = whole.split(':');
  return [whole, lane].find((label) => label.length * LETTER_PX + 4 <= width);
}

function laneRow(
  lane: Lane,
  top: number,
  measured: readonly ReportedSlice[],
  own: At,
  predicted: readonly ReportedSlice[],
  at: At,
  length: number,
): Html {
  const bars = (slices: readonly ReportedSlice[], to: At, thin: boolean): Html[] =>
    [...PHASES, undefined].flatMap((phase) =>
      barsOf(
        slices.filter((slice) => slice.phase === phase),
        length,
      ).map((bar) => {
        const what = bar.count === 1 ? bar.name : `${bar.count} pieces, the first: ${bar.name}`;
        const text = `${thin ? 'predicted: ' : ''}${what}, ${duration(bar.end - bar.start)}`;
        const [y, height] = thin ? [top + 4 + BAR + 1, THIN] : [top + 4, BAR];
        return rect(classOf(phase, thin), bar, y, height, to, text);
      }),
    );
  return html`${rowName(lane, top)}${bars(measured, own, false)}${bars(predicted, at, true)}`;
}

function classOf(phase: Phase | undefined, thin: boolean): string {
  return `${phase ?? 'none'}${thin ? ' predicted' : ''}`;
}

function rowName(name: string, top: number): Html {
  return html`<text class="y" x="${LEFT - 8}" y="${top + 4 + BAR / 2}">${name}</text>`;
}

/** Where the predicted step ends. */
function endMark(predicted: ReportedTrace['predicted'], bottom: number, at: At): Filling {
  if (predicted === undefined) return undefined;
  const x = px(at(predicted.window.end));
  return html`<line class="level plan" x1="${x}" x2="${x}" y1="${TOP}" y2="${bottom}"
    ><title>the predicted step ends: ${duration(predicted.window.end)}</title></line
  >`;
}

function rect(
  name: string,
  { start, end }: Interval,
  y: number,
  height: number,
  at: At,
  title?: string,
): Html {
  const width = px(Math.max(SEEN_PX, at(end) - at(start)));
  return html`<rect
    class="${name}"
    x="${px(at(start))}"
    y="${y}"
    width="${width}"
    height="${height}"
    >${title === undefined ? undefined : html`<title>${title}</title>`}</rect
  >`;
}

/** Bars of a row: at most a few per pixel, whatever the number of slices. */
function barsOf(slices: readonly (Interval & { readonly name: string })[], length: number): Bar[] {
  const seen = (length * SEEN_PX) / (RIGHT - LEFT);
  const bars: { start: number; end: number; count: number; name: string }[] = [];
  for (const slice of [...slices].sort((a, b) => a.start - b.start)) {
    const last = bars.at(-1);
    const isShort = slice.end - slice.start < seen * 2;
    const touches = last !== undefined && slice.start - last.end <= seen;
    const overlaps = last !== undefined && slice.start < last.end;
    if (last === undefined || !(overlaps || (touches && isShort))) {
      const { start, end, name } = slice;
      bars.push({ start, end, name, count: 1 });
    } else {
      last.end = Math.max(last.end, slice.end);
      last.count += 1;
    }
  }
  return bars;
}
