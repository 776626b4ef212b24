/**
 * @file The timeline of a step: a row per lane, with the times in which compute stood still.
 */
import { LANES, type Lane } from '../../core/types.js';
import { PHASES, type Phase } from '../plan/step-plan.js';
import { html, type Html } from './html.js';
import { clip, gaps, union, type Interval } from './intervals.js';
import type { ReportedSlice, ReportedTrace } from './read-trace.js';
import { linearScale, px, tickText, type Scale } from './scale.js';

const WIDTH = 960;
const LEFT = 90;
const ROW = 26;
const BAR = 18;

/** Slices nearer than this become one bar: nothing between them could be seen. */
const SEEN_PX = 0.7;

/** Slices of one phase that are drawn as one. */
interface Bar extends Interval {
  readonly count: number;
  readonly name: string;
  readonly phase: Phase;
}

/** The lanes of a trace's step, times in milliseconds from its beginning. */
export function timelineChart({ step, window, slices }: ReportedTrace): Html {
  const height = LANES.length * ROW + 40;
  const milliseconds = (window.end - window.start) / 1000;
  const scale = linearScale([0, milliseconds], [LEFT, WIDTH - 12], { tickCount: 10, ends: false });
  const at = (time: number): number => scale.at((time - window.start) / 1000);
  const title = `Step ${step}, lane by lane`;
  return html`<figure>
    <figcaption>
      ${title} ${PHASES.map((phase) => html` <span class="key ${phase}">${phase}</span>`)}
      <span class="key stall">compute stands still</span>
    </figcaption>
    <svg viewBox="0 0 ${WIDTH} ${height}" role="img" aria-label="${title}">
      ${axis(scale, LANES.length * ROW)} ${stalls(slices.compute, window, at)}
      ${LANES.map((lane, row) => laneRow(lane, row, barsOf(slices[lane], window), at))}
      <text class="x" x="${(LEFT + WIDTH) / 2}" y="${height - 4}">milliseconds</text>
    </svg>
  </figure>`;
}

function axis(scale: Scale, bottom: number): Html[] {
  return scale.ticks.map((tick) => {
    const x = px(scale.at(tick));
    return html`<line class="grid" x1="${x}" x2="${x}" y1="0" y2="${bottom}" /><text
        class="x"
        x="${x}"
        y="${bottom + 16}"
        >${tickText(tick)}</text
      >`;
  });
}

function stalls(
  compute: readonly ReportedSlice[],
  window: Interval,
  at: (time: number) => number,
): Html[] {
  return gaps(window, union(compute))
    .filter(({ start, end }) => at(end) - at(start) >= SEEN_PX)
    .map(
      (gap) =>
        html`<rect
          class="stall"
          x="${px(at(gap.start))}"
          y="0"
          width="${px(at(gap.end) - at(gap.start))}"
          height="${LANES.length * ROW}"
          ><title>compute stands still for ${duration(gap)}</title></rect
        >`,
    );
}

function laneRow(
  lane: Lane,
  row: number,
  bars: readonly Bar[],
  at: (time: number) => number,
): Html {
  const top = row * ROW + (ROW - BAR) / 2;
  const drawn = bars.map((bar) => {
    const what = bar.count === 1 ? bar.name : `${bar.count} pieces`;
    const width = Math.max(SEEN_PX, at(bar.end) - at(bar.start));
    return html`<rect
      class="${bar.phase}"
      x="${px(at(bar.start))}"
      y="${top}"
      width="${px(width)}"
      height="${BAR}"
      ><title>${what}, ${duration(bar)}</title></rect
    >`;
  });
  return html`<text class="y" x="${LEFT - 8}" y="${row * ROW + ROW / 2}">${lane}</text>${drawn}`;
}

/** Bars of a lane: at most a few per pixel, whatever the number of slices. */
function barsOf(slices: readonly ReportedSlice[], window: Interval): Bar[] {
  const seen = ((window.end - window.start) * SEEN_PX) / (WIDTH - LEFT);
  return PHASES.flatMap((phase) => {
    const bars: { start: number; end: number; count: number; name: string; phase: Phase }[] = [];
    const own = slices.filter((slice) => slice.phase === phase);
    for (const slice of own.sort((a, b) => a.start - b.start)) {
      const last = bars.at(-1);
      const isShort = slice.end - slice.start < seen * 2;
      const touches = last !== undefined && slice.start - last.end <= seen;
      const overlaps = last !== undefined && slice.start < last.end;
      if (last === undefined || !(overlaps || (touches && isShort))) {
        const { start, end, name } = slice;
        bars.push({ start, end, name, count: 1, phase });
      } else {
        last.end = Math.max(last.end, slice.end);
        last.count += 1;
      }
    }
    return bars.flatMap((bar) => clip(bar, window).map((part) => ({ ...bar, ...part })));
  });
}

function duration({ start, end }: Interval): string {
  return `${Number(((end - start) / 1000).toPrecision(3))} ms`;
}
