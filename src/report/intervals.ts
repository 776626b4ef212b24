/**
 * @file Sets of times as intervals: sorted, without overlap.
 */

export interface Interval {
  readonly start: number;
  readonly end: number;
}

/** The times that any of `intervals` covers. @param gap intervals no farther apart become one */
export function union(intervals: readonly Interval[], gap = 0): Interval[] {
  const merged: { start: number; end: number }[] = [];
  for (const { start, end } of [...intervals].sort((a, b) => a.start - b.start)) {
    const last = merged.at(-1);
    if (last === undefined || start > last.end + gap) merged.push({ start, end });
    else last.end = Math.max(last.end, end);
  }
  return merged;
}

/** The times of `whole` that `covered`, a union, leaves free. */
export function gaps(whole: Interval, covered: readonly Interval[]): Interval[] {
  const free: Interval[] = [];
  let from = whole.start;
  for (const { start, end } of covered) {
    if (start > from) free.push({ start: from, end: Math.min(start, whole.end) });
    from = Math.max(from, end);
    if (from >= whole.end) return free;
  }
  return [...free, { start: from, end: whole.end }];
}

/** Length of a union. */
export function lengthOf(covered: readonly Interval[]): number {
  return covered.reduce((sum, { start, end }) => sum + end - start, 0);
}

/** Length of the times that lie in both unions. */
export function commonLength(a: readonly Interval[], b: readonly Interval[]): number {
  let length = 0;
  for (let i = 0, j = 0; i < a.length && j < b.length;) {
    const [one, other] = [a[i]!, b[j]!];
    length += Math.max(0, Math.min(one.end, other.end) - Math.max(one.start, other.start));
    if (one.end <= other.end) i += 1;
    else j += 1;
  }
  return length;
}

/** The part of an interval within `whole`, where there is one. */
export function clip({ start, end }: Interval, whole: Interval): Interval[] {
  const clipped = { start: Math.max(start, whole.start), end: Math.min(end, whole.end) };
  return clipped.end > clipped.start ? [clipped] : [];
}
