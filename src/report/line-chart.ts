/**
 * @file Lines over an axis, as inline SVG.
 */
import { Html, html, type Filling } from './html.js';
import { linearScale, px, tickText, type Scale } from './scale.js';

export interface Point {
  readonly x: number;
  readonly y: number;
}

export interface Line {
  readonly name: string;
  /** Ascending in x. */
  readonly points: readonly Point[];
  /** Class of the style sheet: `a`, `b`, `c`. */
  readonly color: 'a' | 'b' | 'c';
  /** Whether values hold until the next point. */
  readonly stepped?: boolean;
}

export interface LineChart {
  readonly title: string;
  readonly xLabel: string;
  readonly lines: readonly Line[];
  /** Ends of the y axis; default: the values'. */
  readonly y?: readonly [number, number];
  readonly yText?: (value: number) => string;
}

const WIDTH = 720;
const HEIGHT = 220;
const PLOT = { left: 70, right: WIDTH - 12, top: 12, bottom: HEIGHT - 38 };

/** Points beyond which a line keeps only its extremes per column: more than a plot has pixels. */
const MAX_POINTS = 1200;

/** Lines over a common axis; undefined where there is no point. */
export function lineChart(chart: LineChart): Html | undefined {
  const points = chart.lines.flatMap((line) => line.points);
  if (points.length === 0) return undefined;
  const x = linearScale(extent(points.map((point) => point.x)), [PLOT.left, PLOT.right], {
    tickCount: 8,
    ends: false,
  });
  const y = linearScale(chart.y ?? extent(points.map((point) => point.y)), [PLOT.bottom, PLOT.top]);
  const text = chart.yText ?? tickText;
  return html`<figure>
    <figcaption>${chart.title}${legend(chart.lines)}</figcaption>
    <svg viewBox="0 0 ${WIDTH} ${HEIGHT}" role="img" aria-label="${chart.title}">
      ${yAxis(y, text)}${xAxis(x, chart.xLabel)}
      ${chart.lines.map((line) => drawLine(line, x, y, text))}
    </svg>
  </figure>`;
}

function legend(lines: readonly Line[]): Filling {
  if (lines.length < 2) return undefined;
  return lines.map(({ name, color }) => html` <span class="key ${color}">${name}</span>`);
}

function yAxis(y: Scale, text: (value: number) => string): Html[] {
  return y.ticks.map((tick) => {
    const at = px(y.at(tick));
    return html`<line
        class="grid"
        x1="${PLOT.left}"
        x2="${PLOT.right}"
        y1="${at}"
        y2="${at}"
      /><text class="y" x="${PLOT.left - 6}" y="${at}">${text(tick)}</text>`;
  });
}

function xAxis(x: Scale, label: string): Html {
  const ticks = x.ticks.map(
    (tick) =>
      html`<text class="x" x="${px(x.at(tick))}" y="${PLOT.bottom + 16}">${tickText(tick)}</text>`,
  );
  const middle = (PLOT.left + PLOT.right) / 2;
  return html`${ticks}<text class="x" x="${middle}" y="${HEIGHT - 4}">${label}</text>`;
}

function drawLine(line: Line, x: Scale, y: Scale, text: (value: number) => string): Filling {
  const shown = thin(line.points);
  const [first] = shown;
  if (first === undefined) return undefined;
  let path = `M${px(x.at(first.x))} ${px(y.at(first.y))}`;
  for (const point of shown.slice(1)) {
    const [atX, atY] = [px(x.at(point.x)), px(y.at(point.y))];
    path += line.stepped === true ? `H${atX}V${atY}` : `L${atX} ${atY}`;
  }
  // Few points are worth pointing at.
  const dots =
    shown.length > 60
      ? []
      : shown.map(
          (point) =>
            html`<circle
              class="${line.color}"
              cx="${px(x.at(point.x))}"
              cy="${px(y.at(point.y))}"
              r="2.5"
              ><title>${line.name}: ${text(point.y)} at ${tickText(point.x)}</title></circle
            >`,
        );
  return html`<path class="line ${line.color}" d="${path}" />${dots}`;
}

/** The points, or the lowest and highest of each column where there are many. */
export function thin(points: readonly Point[], limit = MAX_POINTS): readonly Point[] {
  if (points.length <= limit) return points;
  const columns = Math.floor(limit / 2);
  const kept: Point[] = [];
  for (let column = 0; column < columns; column += 1) {
    const from = Math.floor((column * points.length) / columns);
    const to = Math.floor(((column + 1) * points.length) / columns);
    let [low, high] = [from, from];
    for (let index = from + 1; index < to; index += 1) {
      if (points[index]!.y < points[low]!.y) low = index;
      if (points[index]!.y > points[high]!.y) high = index;
    }
    kept.push(points[Math.min(low, high)]!);
    if (low !== high) kept.push(points[Math.max(low, high)]!);
  }
  return kept;
}

function extent(values: readonly number[]): [number, number] {
  let [min, max] = [Infinity, -Infinity];
  for (const value of values) {
    min = Math.min(min, value);
    max = Math.max(max, value);
  }
  return [min, max];
}
