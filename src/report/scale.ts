/**
 * @file Axes: from values to pixels, with ticks at round numbers.
 */

export interface Scale {
  readonly min: number;
  readonly max: number;
  /** Round numbers within the scale. */
  readonly ticks: readonly number[];
  /** The pixel of a value. */
  readonly at: (value: number) => number;
}

/** What an axis is like. */
export interface ScaleOptions {
  /** About so many ticks. Default 5. */
  readonly tickCount?: number;
  /** Whether the scale ends at ticks. Default true. */
  readonly ends?: boolean;
  /** Whether values are whole numbers, and ticks too. Default false. */
  readonly whole?: boolean;
}

/** Steps between ticks, times a power of ten. */
const STEPS = [1, 2, 5, 10];

/** Below this, steps between ticks would run out of exponents. */
const TINY = 1e-300;

/** The smallest round step that needs at most `count` of them over `length`. */
function roundStep(length: number, count: number): number {
  const least = length / count;
  const power = 10 ** Math.floor(Math.log10(least));
  return power * (STEPS.find((step) => step * power >= least * (1 - 1e-9)) ?? 10);
}

/** A linear scale over `values` and `pixels` (from, to). */
export function linearScale(
  values: readonly [number, number],
  pixels: readonly [number, number],
  { tickCount = 5, ends = true, whole = false }: ScaleOptions = {},
): Scale {
  let [min, max] = values;
  const size = Math.max(Math.abs(min), Math.abs(max));
  if (!(max - min > Math.max(size * 1e-12, TINY))) {
    // As good as one value: room around it.
    const room = whole ? 1 : size * 0.1 > TINY ? size * 0.1 : 1;
    [min, max] = [min - room, max + room];
  }
  const least = roundStep(max - min, tickCount);
  const step = whole ? Math.max(1, least) : least;
  if (ends) [min, max] = [Math.floor(min / step) * step, Math.ceil(max / step) * step];
  const first = Math.ceil(min / step - 1e-9);
  const last = Math.floor(max / step + 1e-9);
  // Whole multiples, so that 0.3 does not become 0.30000000000000004.
  const ticks = Array.from({ length: last - first + 1 }, (_, index) =>
    Number(((first + index) * step).toPrecision(12)),
  );
  const [from, to] = pixels;
  return { min, max, ticks, at: (value) => from + ((value - min) / (max - min)) * (to - from) };
}

/** A pixel for an attribute: a tenth is fine enough. */
export function px(value: number): string {
  return String(Math.round(value * 10) / 10);
}

/** How the numbers of one axis are written: all with an exponent where some need one. */
export function tickTexts(ticks: readonly number[]): (value: number) => string {
  const sizes = ticks.map(Math.abs).filter((size) => size > 0);
  const [least, most] = [Math.min(...sizes), Math.max(...sizes)];
  if (sizes.length === 0 || (least >= 1e-3 && most < 1e6)) return String;
  return (value) => (value === 0 ? '0' : value.toExponential().replace('e+', 'e'));
}

/** The binary unit in which `bytes` is at least 1, for axes with round ticks. */
export function byteUnit(bytes: number): { readonly bytes: number; readonly name: string } {
  const names = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  const power = bytes < 1 ? 0 : Math.floor(Math.log2(bytes) / 10);
  const index = Math.min(power, names.length - 1);
  return { bytes: 1024 ** index, name: names[index] ?? 'B' };
}
