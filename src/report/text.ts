/**
 * @file Numbers as a page says them.
 */

/** Three digits and a unit: `1.23 s`, `45.6 ms`, `789 µs`; beyond some minutes `3 h 25 min`. */
export function duration(microseconds: number): string {
  const minutes = Math.round(microseconds / 60e6);
  if (minutes >= 60) return `${count(Math.floor(minutes / 60))} h ${minutes % 60} min`;
  if (minutes >= 10) return `${minutes} min`;
  const [value, unit] =
    microseconds >= 999_500
      ? [microseconds / 1e6, 's']
      : microseconds >= 999.5
        ? [microseconds / 1000, 'ms']
        : [microseconds, 'µs'];
  return `${threeDigits(value)} ${unit}`;
}

/** At least three digits, whole ones all. */
export function threeDigits(value: number): string {
  if (Math.abs(value) >= 100) return Math.round(value).toLocaleString('en-US');
  return String(Number(value.toPrecision(3)));
}

/** A share of 1, to a tenth of a per cent. */
export function percent(share: number): string {
  return `${Math.round(share * 1000) / 10} %`;
}

/** A whole number with separators. */
export function count(value: number): string {
  return value.toLocaleString('en-US');
}

/** Six digits of a measured value; null is what JSON lacks. */
export function decimals(value: number | null): string {
  return value === null ? 'not a number' : String(Number(value.toPrecision(6)));
}

/** How many times as long. */
export function ratio(measured: number, predicted: number): string {
  return predicted > 0 ? `${threeDigits(measured / predicted)} ×` : '-';
}
