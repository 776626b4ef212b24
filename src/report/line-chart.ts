/**
 * @file Lines over an axis, as inline SVG, with the same values as a table for those who do not see
 * them.
 */
import { html, type Filling, type Html } from './html.js';
import { linearScale, px, tickTexts, type Scale } from './scale.js';
import type { Column, Series } from './series.js';
import { threeDigits } from './text.js';

export interface Line {
  readonly name: string;
  readonly series: Series;
  /** Class of the style sheet: `a`, `b`, `c`; `b` is dashed, so that colour is not all that tells. */
  readonly color: 'a' | 'b' | 'c';
  /** Whether values hold until the next one. */
  readonly stepped?: boolean;
}

/** A level that values are compared with, drawn across. */
export interface Level {
  readonly name: string;
  readonly value: number;
  readonly kind: 'limit' | 'plan';
}

export interface LineChart {
  readonly title: string;
  readonly xLabel: string;
  readonly lines: readonly Line[];
  /** Ends of the axes; default: the values'. */
  readonly x?: readonly [number, number];
  readonly y?: readonly [number, number];
  /** Whether positions are whole numbers. Default false. */
  readonly wholeX?: boolean;
  readonly yText?: (value: number) => string;
  readonly levels?: readonly Level[];
  /** Places on the x axis that are named, such as where steps begin. */
  readonly marks?: readonly { readonly at: number; readonly name: string }[];
}

const WIDTH = 460;
const HEIGHT = 220;
const PLOT = { left: 64, right: WIDTH - 16, top: 18, bottom: HEIGHT - 40 };

/** Values up to which each is a dot to point at. */
const DOTS = 60;

/** Rows of a table. */
const ROWS = 50;

/** Lines over a common axis; undefined where there is no value. */
export function lineChart(chart: LineChart): Html | undefined {
  const lines = chart.lines.filter(({ series }) => !series.isEmpty);
  if (lines.length === 0) return undefined;
  const columns = lines.flatMap(({ series }) => series.columns);
  const x = linearScale(chart.x ?? extent(columns, 'from', 'to'), [PLOT.left, PLOT.right], {
    tickCount: 6,
    ends: false,
    whole: chart.wholeX === true,
  });
  const y = linearScale(chart.y ?? extent(columns, 'low', 'high'), [PLOT.bottom, PLOT.top]);
  const text = chart.yText ?? tickTexts(y.ticks);
  const levels = (chart.levels ?? []).filter(({ value }) => value >= y.min && value <= y.max);
  return html`<figure>
    <figcaption>${chart.title}${legend(lines, levels)}</figcaption>
    <svg viewBox="0 0 ${WIDTH} ${HEIGHT}" role="img" aria-label="${summaryOf(chart, lines)}">
      ${yAxis(y, text)}${xAxis(x, chart.xLabel)}${marks(chart, x)}
      ${levels.map((level) => drawLevel(level, y))}
      ${lines.map((line) => drawLine(line, x, y, chart))}
    </svg>
    ${valuesTable(chart, lines)}
  </figure>`;
}

function extent(
  columns: readonly Column[],
  low: 'from' | 'low',
  high: 'to' | 'high',
): [number, number] {
  let [min, max] = [Infinity, -Infinity];
  for (const column of columns) {
    min = Math.min(min, column[low]);
    max = Math.max(max, column[high]);
  }
  return [min, max];
}

/** What a chart says, in a sentence per line. */
function summaryOf(
  { title, xLabel, yText = valueText }: LineChart,
  lines: readonly Line[],
): string {
  const sentences = lines.map(({ name, series }) => {
    const { columns } = series;
    const [first, last] = [columns[0]!, columns.at(-1)!];
    const [low, high] = extent(columns, 'low', 'high');
    const ends = `${yText(first.mean)} at ${xLabel} ${valueText(first.from)}, ${yText(last.last)} at ${valueText(last.to)}`;
    return `${name}: ${ends}, between ${yText(low)} and ${yText(high)}`;
  });
  return `${title}. ${sentences.join('. ')}.`;
}

function valueText(value: number): string {
  return String(Number(value.toPrecision(5)));
}

function legend(lines: readonly Line[], levels: readonly Level[]): Filling {
  const named = lines.length < 2 ? [] : lines;
  return [
    ...named.map(({ name, color }) => html` <span class="key ${color}">${name}</span>`),
    ...levels.map(({ name, kind }) => html` <span class="key ${kind}">${name}</span>`),
  ];
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
  const text = tickTexts(x.ticks);
  const ticks = x.ticks.map(
    (tick) =>
      html`<text class="x" x="${px(x.at(tick))}" y="${PLOT.bottom + 16}">${text(tick)}</text>`,
  );
  const middle = (PLOT.left + PLOT.right) / 2;
  return html`${ticks}<text class="x" x="${middle}" y="${HEIGHT - 6}">${label}</text>`;
}

function marks({ marks: all = [] }: LineChart, x: Scale): Html[] {
  return all
    .filter(({ at }) => at >= x.min && at <= x.max)
    .map(({ at, name }) => {
      const left = px(x.at(at));
      return html`<line
          class="mark"
          x1="${left}"
          x2="${left}"
          y1="${PLOT.top}"
          y2="${PLOT.bottom}"
        /><text class="mark" x="${px(x.at(at) + 2)}" y="${PLOT.top - 6}">${name}</text>`;
    });
}

function drawLevel({ name, value, kind }: Level, y: Scale): Html {
  const at = px(y.at(value));
  return html`<line class="level ${kind}" x1="${PLOT.left}" x2="${PLOT.right}" y1="${at}" y2="${at}"
    ><title>${name}</title></line
  >`;
}

function drawLine(line: Line, x: Scale, y: Scale, { yText = valueText }: LineChart): Filling {
  const { columns, isWhole } = line.series;
  const middle = ({ from, to }: Column): number => x.at((from + to) / 2);
  let path = '';
  let band = '';
  for (const [index, column] of columns.entries()) {
    const atX = px(middle(column));
    const atY = px(y.at(line.stepped === true ? column.last : column.mean));
    if (index === 0) path = `M${atX} ${atY}`;
    else path += line.stepped === true ? `H${atX}V${atY}` : `L${atX} ${atY}`;
    if (!isWhole) band += `M${atX} ${px(y.at(column.low))}V${px(y.at(column.high))}`;
  }
  // Few values are worth pointing at.
  const dots =
    line.stepped === true || columns.length > DOTS
      ? []
      : columns.map(
          (column) =>
            html`<circle
              class="${line.color}"
              cx="${px(middle(column))}"
              cy="${px(y.at(column.mean))}"
              r="2.5"
              ><title>
                ${line.name}: ${yText(column.mean)} at ${valueText(column.from)}
              </title></circle
            >`,
        );
  const range = band === '' ? undefined : html`<path class="band ${line.color}" d="${band}" />`;
  return html`${range}<path class="line ${line.color}" d="${path}" />${dots}`;
}

/** Rows of the same values, thinned where there are many. */
function valuesTable(
  { title, xLabel, yText = valueText }: LineChart,
  lines: readonly Line[],
): Html {
  const tables = lines.map(({ name, series }) => {
    const { columns } = series;
    const every = Math.ceil(columns.length / ROWS);
    const shown = columns.filter((_, index) => index % every === 0 || index === columns.length - 1);
    const rows = shown.map(({ from, to, mean }) => {
      const where = from === to ? valueText(from) : `${valueText(from)} to ${valueText(to)}`;
      return html`<tr>
        <th scope="row">${where}</th>
        <td>${yText(mean)}</td>
      </tr>`;
    });
    return html`<table>
      <tr>
        <th scope="col">${xLabel}</th>
        <th scope="col">${name}</th>
      </tr>
      ${rows}
    </table>`;
  });
  return html`<details>
    <summary>${title} as a table</summary>
    ${tables}
  </details>`;
}

/** A value with its unit, for axes of other units than 1. */
export function withUnit(unit: string): (value: number) => string {
  return (value) => `${threeDigits(value)} ${unit}`;
}
