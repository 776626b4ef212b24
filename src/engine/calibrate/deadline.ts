/**
 * @file The time that measuring may take: parts get shares of it, and stop when theirs is over.
 */

/** A point in time, or the moment before it in which `signal` aborts. */
export class Deadline {
  readonly #endMs: number;
  readonly #signal: AbortSignal | undefined;

  private constructor(endMs: number, signal: AbortSignal | undefined) {
    this.#endMs = endMs;
    this.#signal = signal;
  }

  /** So many seconds from now. */
  static in(seconds: number, signal?: AbortSignal): Deadline {
    return new Deadline(performance.now() + seconds * 1000, signal);
  }

  get isOver(): boolean {
    return this.seconds === 0;
  }

  /** Seconds that are left, at least 0. */
  get seconds(): number {
    if (this.#signal?.aborted === true) return 0;
    return Math.max(0, this.#endMs - performance.now()) / 1000;
  }

  /** As this, but in so many seconds at least. */
  atLeast(seconds: number): Deadline {
    return Deadline.in(Math.max(seconds, this.seconds), this.#signal);
  }

  /** This share of what is left now, and at most so many seconds. */
  part(share: number, most = Infinity): Deadline {
    return Deadline.in(Math.min(this.seconds * share, most), this.#signal);
  }
}

/** Seconds of one measurement on a machine that has time. */
const ENOUGH_SECONDS = 0.3;

/**
 * Repeats `measure`, once at least, until it has been measured long enough or time is over.
 *
 * The mean, not the median: a step lasts as long as its operations together, and where others use
 * the machine too, a few of them take several times as long as most.
 *
 * @param measure returns seconds; its first run does not count, since it touches memory
 */
export async function meanSeconds(
  until: Deadline,
  measure: () => Promise<number>,
): Promise<number> {
  const first = await measure();
  const enough = until.part(1, ENOUGH_SECONDS);
  let sum = 0;
  let count = 0;
  while (!enough.isOver) {
    sum += await measure();
    count += 1;
  }
  return count === 0 ? first : sum / count;
}
