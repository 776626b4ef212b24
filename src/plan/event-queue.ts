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

interface Event {
  readonly time: number;
  readonly order: number;
  readonly run: () => void;
}

/** A simulated clock, in seconds from 0. */
export class EventQueue {
  readonly #events = new MinHeap<Event>(
    (a, b) => a.time < b.time || (a.time === b.time && a.order < b.order),
  );
  #now = 0;
  #order = 0;

  get now(): number {
    return this.#now;
  }

  /** Runs `run` at `time`, not before now. */
  at(time: number, run: () => void): void {
    this.#order += 1;
    this.#events.push({ time: Math.max(time, this.#now), order: this.#order, run });
  }

  /** Runs everything there is, and what that requests. */
  drain(): void {
    for (let event = this.#events.pop(); event !== undefined; event = this.#events.pop()) {
      this.#now = event.time;
      event.run();
    }
  }
}
