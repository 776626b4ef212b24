/**
 * @file Splits a lane that runs several things at once into tracks on which nothing overlaps.
 */

export class SubTracks {
  /** When the last slice of each track ended. */
  readonly #ends: number[] = [];

  /**
   * The track of a slice, from 0 on. Slices come in the order in which they ended, so that a track
   * whose last slice ended before this one began is free of all others; of these the one that was
   * busy last is taken, which needs as few tracks as slices ever ran at once.
   */
  place(start: number, end: number): number {
    let best = -1;
    for (const [track, busyUntil] of this.#ends.entries()) {
      if (busyUntil <= start && (best < 0 || busyUntil > this.#ends[best]!)) best = track;
    }
    if (best < 0) best = this.#ends.length;
    this.#ends[best] = end;
    return best;
  }
}
