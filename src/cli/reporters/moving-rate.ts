/**
 * @file Speed over the last steps: tokens per second and seconds per step.
 */

/** Steps that the average covers: long enough to be calm, short enough to follow a change. */
const WINDOW_STEPS = 20;

export class MovingRate {
  /** A ring of the last steps. */
  readonly #tokens = new Float64Array(WINDOW_STEPS);
  readonly #seconds = new Float64Array(WINDOW_STEPS);
  #count = 0;

  add(tokens: number, seconds: number): void {
    const slot = this.#count % WINDOW_STEPS;
    this.#tokens[slot] = tokens;
    this.#seconds[slot] = seconds;
    this.#count += 1;
  }

  /** NaN before the first step. */
  get tokensPerSecond(): number {
    return sum(this.#tokens) / sum(this.#seconds);
  }

  /** NaN before the first step. */
  get secondsPerStep(): number {
    return sum(this.#seconds) / Math.min(this.#count, WINDOW_STEPS);
  }
}

function sum(values: Float64Array): number {
  return values.reduce((total, value) => total + value, 0);
}
