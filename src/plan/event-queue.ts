/**
 * @file What a simulated clock runs: callbacks by time, those of one time in the order of request.
 */

/** A binary heap: the least item by `isBefore` comes out first. */
export class MinHeap<T> {
  readonly #items: T[] = [];
  readonly #isBefore: (a: T, b: T) => boolean;

  constructor(isBefore: (a: T, b: T) => boolean) {
    this.#isBefore = isBefore;
  }

  get size(): number {
    return this.#items.length;
  }

  get least(): T | undefined {
    return this.#items[0];
  }

  push(item: T): void {
    const items = this.#items;
    let at = items.push(item) - 1;
    while (at > 0) {
      const parent = (at - 1) >> 1;
      if (!this.#isBefore(item, items[parent]!)) break;
      items[at] = items[parent]!;
      at = parent;
    }
    items[at] = item;
  }

  pop(): T | undefined {
    const items = this.#items;
    const least = items[0];
    const last = items.pop();
    if (last === undefined || items.length === 0) return least;
    let at = 0;
    for (;;) {
      let child = 2 * at + 1;
      if (child >= items.length) break;
      const right = child + 1;
      if (right < items.length && this.#isBefore(items[right]!, items[child]!)) child = right;
      if (!this.#isBefore(items[child]!, last)) break;
      items[at] = items[child]!;
      at = child;
    }
    items[at] = last;
    return least;
  }
}

/** A simulated clock, in seconds from 0. */
export class EventQueue {
  /** A binary heap by time, then order of request, in parallel arrays: simulations of large models
   * have a million events. */
  #times = new Float64Array(1024);
  #orders = new Float64Array(1024);
  readonly #runs: (() => void)[] = [];
  #now = 0;
  #order = 0;

  get now(): number {
    return this.#now;
  }

  /** Runs `run` at `time`, not before now. */
  at(time: number, run: () => void): void {
    const due = Math.max(time, this.#now);
    const order = (this.#order += 1);
    let at = this.#runs.push(run) - 1;
    if (at === this.#times.length) this.#grow();
    const [times, orders, runs] = [this.#times, this.#orders, this.#runs];
    while (at > 0) {
      const parent = (at - 1) >> 1;
      // Of one time, what is there was requested earlier.
      if (times[parent]! <= due) break;
      times[at] = times[parent]!;
      orders[at] = orders[parent]!;
      runs[at] = runs[parent]!;
      at = parent;
    }
    times[at] = due;
    orders[at] = order;
    runs[at] = run;
  }

  /** Runs everything there is, and what that requests. */
  drain(): void {
    while (this.#runs.length > 0) {
      const run = this.#runs[0]!;
      this.#now = this.#times[0]!;
      this.#removeFirst();
      run();
    }
  }

  #removeFirst(): void {
    const [times, orders, runs] = [this.#times, this.#orders, this.#runs];
    const last = runs.pop()!;
    const count = runs.length;
    if (count === 0) return;
    const time = times[count]!;
    const order = orders[count]!;
    let at = 0;
    for (;;) {
      let child = 2 * at + 1;
      if (child >= count) break;
      if (child + 1 < count && this.#isBefore(child + 1, times[child]!, orders[child]!)) child += 1;
      if (!this.#isBefore(child, time, order)) break;
      times[at] = times[child]!;
      orders[at] = orders[child]!;
      runs[at] = runs[child]!;
      at = child;
    }
    times[at] = time;
    orders[at] = order;
    runs[at] = last;
  }

  #isBefore(at: number, time: number, order: number): boolean {
    const other = this.#times[at]!;
    return other < time || (other === time && this.#orders[at]! < order);
  }

  #grow(): void {
    const grown = (old: Float64Array): Float64Array<ArrayBuffer> => {
      const larger = new Float64Array(2 * old.length);
      larger.set(old);
      return larger;
    };
    this.#times = grown(this.#times);
    this.#orders = grown(this.#orders);
  }
}
