/**
 * @file A link between tiers as the simulator sees it, and the staging buffers beside it; mirrors
 * src/engine/link-turns.ts and tiers/host/staging-pool.ts.
 *
 * A link moves one piece after the other. A few pieces are admitted at a time, of those that wait
 * the lowest operation first; admitted ones are moved in order of admission. What workers move is
 * queued behind what is admitted.
 */
import { CHUNK_ELEMENTS } from '../../core/types.js';
import { MinHeap, type EventQueue } from './event-queue.js';

/** Bytes of a piece: one chunk of float32. */
export const PIECE_BYTES = CHUNK_ELEMENTS * 4;

interface Waiting {
  readonly priority: number;
  readonly bytes: number;
  readonly seconds: number;
  readonly done: (start: number) => void;
}

export class SimulatedLink {
  readonly #clock: EventQueue;
  readonly #capacity: number;
  readonly #waiting = new MinHeap<Waiting>((a, b) => a.priority < b.priority);
  #count = 0;
  #bytes = 0;
  #freeAt = 0;
  #shared: { readonly other: SimulatedLink; readonly share: number } | undefined;

  /** @param capacity pieces that are admitted at a time */
  constructor(clock: EventQueue, capacity: number) {
    this.#clock = clock;
    this.#capacity = capacity;
  }

  /** What moves here also takes `share` of its time on `other` (a disk that reads or writes). */
  shareWith(other: SimulatedLink, share: number): void {
    if (share > 0) this.#shared = { other, share };
  }

  /** Moves a piece when it is the turn of `priority`; tells when that began, at its end. */
  move(priority: number, bytes: number, seconds: number, done: (start: number) => void): void {
    if (this.#waiting.size === 0 && this.#mayAdmit(bytes)) {
      this.#begin(bytes, seconds, done);
      return;
    }
    this.#waiting.push({ priority, bytes, seconds, done });
    this.#admit();
  }

  /** Time at which something of `seconds` is over that is queued now. */
  reserve(seconds: number): number {
    const { now } = this.#clock;
    this.#freeAt = Math.max(now, this.#freeAt) + seconds;
    if (this.#shared !== undefined && seconds > 0) {
      const { other, share } = this.#shared;
      other.#freeAt = Math.max(now, other.#freeAt) + seconds * share;
    }
    return this.#freeAt;
  }

  /** Large pieces stand for several, so that their bytes count too. */
  #mayAdmit(bytes: number): boolean {
    if (this.#count === 0) return true;
    if (this.#count >= this.#capacity) return false;
    return this.#bytes + bytes <= this.#capacity * PIECE_BYTES;
  }

  #admit(): void {
    for (
      let next = this.#waiting.least;
      next !== undefined && this.#mayAdmit(next.bytes);
      next = this.#waiting.least
    ) {
      this.#waiting.pop();
      this.#begin(next.bytes, next.seconds, next.done);
    }
  }

  #begin(bytes: number, seconds: number, done: (start: number) => void): void {
    this.#count += 1;
    this.#bytes += bytes;
    const end = this.reserve(seconds);
    this.#clock.at(end, () => {
      this.#count -= 1;
      this.#bytes -= bytes;
      done(end - seconds);
      this.#admit();
    });
  }
}

/** Staging buffers: lent in the order of request. */
export class SimulatedBuffers {
  #free: number;
  readonly #waiters: { readonly count: number; readonly run: () => void }[] = [];

  constructor(count: number) {
    this.#free = count;
  }

  /** Runs `run` once `count` buffers are its own. */
  acquire(count: number, run: () => void): void {
    this.#waiters.push({ count, run });
    this.#serve();
  }

  /** Takes `count` buffers if they are free and nobody waits. */
  tryAcquire(count: number): boolean {
    if (this.#waiters.length > 0 || this.#free < count) return false;
    this.#free -= count;
    return true;
  }

  release(count: number): void {
    this.#free += count;
    this.#serve();
  }

  #serve(): void {
    for (
      let next = this.#waiters[0];
      next !== undefined && next.count <= this.#free;
      next = this.#waiters[0]
    ) {
      this.#waiters.shift();
      this.#free -= next.count;
      next.run();
    }
  }
}
