/**
 * @file A gate that opens ever more rarely: a few lines however long the work takes.
 */

/** Opens after `firstMs`, then after twice as long each time. */
export class BackingOff {
  readonly #now: () => number;
  #dueMs: number;
  #delayMs: number;

  /** @param now milliseconds of a monotonic clock */
  constructor(firstMs: number, now: () => number) {
    this.#now = now;
    this.#delayMs = firstMs;
    this.#dueMs = now() + firstMs;
  }

  /** Whether it is time; the next time is then further away. */
  open(): boolean {
    if (this.#now() < this.#dueMs) return false;
    this.#delayMs *= 2;
    this.#dueMs = this.#now() + this.#delayMs;
    return true;
  }
}
