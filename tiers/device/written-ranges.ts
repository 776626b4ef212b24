/**
 * @file Which elements of a tensor under construction have been written: disjoint ascending ranges.
 */

/** A set of elements, kept as merged half-open ranges. */
export class WrittenRanges {
  /** Ascending, disjoint, not touching. */
  #ranges: { start: number; end: number }[] = [];

  /** Adds elements `start … end`; false, and nothing added, when some are there already. */
  add(start: number, end: number): boolean {
    if (start === end) return true;
    const next = this.#ranges.findIndex((range) => range.end > start);
    const at = next < 0 ? this.#ranges.length : next;
    if (next >= 0 && this.#ranges[next]!.start < end) return false;
    this.#ranges.splice(at, 0, { start, end });
    this.#merge(at);
    if (at > 0) this.#merge(at - 1);
    return true;
  }

  /** Whether elements `0 … length` are there, and no others. */
  covers(length: number): boolean {
    const [first] = this.#ranges;
    if (first === undefined) return length === 0;
    return this.#ranges.length === 1 && first.start === 0 && first.end === length;
  }

  #merge(index: number): void {
    const [left, right] = [this.#ranges[index], this.#ranges[index + 1]];
    if (left === undefined || right === undefined || left.end !== right.start) return;
    this.#ranges.splice(index, 2, { start: left.start, end: right.end });
  }
}
