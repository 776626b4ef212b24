/**
 * @file Byte sizes: parsing, printing, alignment. `GiB` = 2^30, `GB` = 10^9, bare numbers are bytes.
 */
import { SpillwayError } from './errors.js';

const UNITS: Readonly<Record<string, number>> = {
  '': 1,
  b: 1,
  kb: 1e3,
  mb: 1e6,
  gb: 1e9,
  tb: 1e12,
  kib: 2 ** 10,
  mib: 2 ** 20,
  gib: 2 ** 30,
  tib: 2 ** 40,
};

/**
 * Bytes meant by `text`: a number with an optional unit, case-insensitive, e.g. `1.5 GiB`.
 *
 * @throws BYTE_SIZE_INVALID when it is no such text, negative, a fraction of a byte,
 *   or beyond 2^53
 */
export function parseByteSize(text: string | number): number {
  const match = /^\s*(\d+(?:\.\d+)?(?:e\d+)?)\s*([a-z]*)\s*$/i.exec(String(text));
  const unit = UNITS[(match?.[2] ?? '?').toLowerCase()];
  const exact = match === null || unit === undefined ? Number.NaN : Number(match[1]) * unit;
  // Of a unit a fraction may be given, as `formatBytes` prints it; of a byte it may not.
  const bytes = unit === 1 ? exact : Math.round(exact);
  if (!Number.isSafeInteger(bytes)) {
    throw new SpillwayError(
      'BYTE_SIZE_INVALID',
      `"${text}" is not a byte size; write a number of bytes or a unit such as 512MiB, 8GiB or 10GB`,
    );
  }
  return bytes;
}

/** `bytes` for people, in binary units with up to two decimals: `1.5 GiB`. */
export function formatBytes(bytes: number): string {
  const { value, unit } = inUnit(bytes);
  return `${Number(value.toFixed(2))} ${unit}`;
}

/** A budget of `bytes`, to be given as it is printed: as `formatBytes`, but never for fewer. */
export function formatBudget(bytes: number): string {
  const nearest = formatBytes(bytes);
  if (parseByteSize(nearest) >= bytes) return nearest;
  const { value, unit } = inUnit(bytes);
  return `${Number((Number(value.toFixed(2)) + 0.01).toFixed(2))} ${unit}`;
}

function inUnit(bytes: number): { value: number; unit: string } {
  const names = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let value = bytes;
  let index = 0;
  while (value >= 1024 && index < names.length - 1) {
    value /= 1024;
    index += 1;
  }
  return { value, unit: names[index] ?? 'B' };
}

/** The smallest multiple of `alignment` that is at least `value`. */
export function alignUp(value: number, alignment: number): number {
  return Math.ceil(value / alignment) * alignment;
}

/** The largest multiple of `alignment` that is at most `value`. */
export function alignDown(value: number, alignment: number): number {
  return Math.floor(value / alignment) * alignment;
}
