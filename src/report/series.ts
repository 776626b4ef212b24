/**
 * @file A course of values in bounded memory: where there are more than can be drawn, neighbours are
 * kept together by their least, mean and greatest value.
 */

/** Neighbouring values. */
export interface Column {
  /** Of its first and its last value. */
  readonly from: number;
  readonly to: number;
  readonly low: number;
  readonly high: number;
  readonly mean: number;
  /** The last value. */
  readonly last: number;
  readonly count: number;
}

/** A column that grows. */
interface Growing {
  readonly from: number;
  to: number;
  low: number;
  high: number;
  sum: number;
  last: number;
  count: number;
}

/** Columns that are kept at least, once there were so many values: as many as a chart tells apart. */
const COLUMNS = 500;

/** Beyond this, sums and differences of values overflow. */
const MOST = 1e150;

export class Series {
  readonly #limit: number;
  #columns: Growing[] = [];
  /** Values per column. */
  #stride = 1;

  constructor(limit = COLUMNS) {
    this.#limit = limit;
  }

  /** Adds a value; positions ascend. Ones that no axis holds are left out. @returns whether it was added */
  add(x: number, y: number): boolean {
    if (!(Math.abs(y) <= MOST && Math.abs(x) <= MOST)) return false;
    const current = this.#columns.at(-1);
    if (current === undefined || current.count >= this.#stride) {
      if (this.#columns.length >= 2 * this.#limit) this.#merge();
      this.#columns.push({ from: x, to: x, low: y, high: y, sum: y, last: y, count: 1 });
      return true;
    }
    current.to = x;
    current.low = Math.min(current.low, y);
    current.high = Math.max(current.high, y);
    current.sum += y;
    current.last = y;
    current.count += 1;
    return true;
  }

  get isEmpty(): boolean {
    return this.#columns.length === 0;
  }

  /** Whether every value has a column of its own. */
  get isWhole(): boolean {
    return this.#stride === 1;
  }

  /** In order. */
  get columns(): readonly Column[] {
    return this.#columns.map(({ sum, ...column }) => ({ ...column, mean: sum / column.count }));
  }

  /** The same course in other units. @param x @param y factors, at least 0 */
  scaled(x: number, y: number): Series {
    const series = new Series(this.#limit);
    series.#stride = this.#stride;
    series.#columns = this.#columns.map((column) => ({
      from: column.from * x,
      to: column.to * x,
      low: column.low * y,
      high: column.high * y,
      sum: column.sum * y,
      last: column.last * y,
      count: column.count,
    }));
    return series;
  }

  /** Repeats the last value at `x`, where that is later. */
  heldTo(x: number): this {
    const last = this.#columns.at(-1);
    if (last !== undefined && x > last.to) this.add(x, last.last);
    return this;
  }

  /** Halves the columns. */
  #merge(): void {
    const merged: Growing[] = [];
    for (let index = 0; index < this.#columns.length; index += 2) {
      const one = this.#columns[index]!;
      const other = this.#columns[index + 1];
      merged.push(
        other === undefined
          ? one
          : {
              from: one.from,
              to: other.to,
              low: Math.min(one.low, other.low),
              high: Math.max(one.high, other.high),
              sum: one.sum + other.sum,
              last: other.last,
              count: one.count + other.count,
            },
      );
    }
    this.#columns = merged;
    this.#stride *= 2;
  }
}
