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

/**
 * A linear scale over `values` and `pixels` (from, to).
 *
 * @param tickCount about so many ticks
 * @param ends whether the scale ends at ticks
 */
export function linearScale(
  values: readonly [number, number],
  pixels: readonly [number, number],
  { tickCount = 5, ends = true } = {},
): Scale {
  let [min, max] = values;
  const size = Math.max(Math.abs(min), Math.abs(max));
  if (!(max - min > Math.max(size * 1e-12, TINY))) {
    // As good as one value: room around it.
    const room = size * 0.1 > TINY ? size * 0.1 : 1;
    [min, max] = [min - room, max + room];
  }
  const step = roundStep(max - min, tickCount);
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

/** A number on an axis. */
export function tickText(value: number): string {
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e6)) return value.toExponential().replace('e+', 'e');
  return String(value);
}

/** The binary unit in which `bytes` is at least 1, for axes with round ticks. */
export function byteUnit(bytes: number): { readonly bytes: number; readonly name: string } {
  const names = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  const power = bytes < 1 ? 0 : Math.floor(Math.log2(bytes) / 10);
  const index = Math.min(power, names.length - 1);
  return { bytes: 1024 ** index, name: names[index] ?? 'B' };
}
