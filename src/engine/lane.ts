/**
 * @file One lane of an executor: at most `capacity` operations at a time, the lowest number among
 * those that are ready; of equals, as pieces of one transfer are, the one that came first.
 */
import { assert } from '../../core/errors.js';

interface Waiting {
  readonly id: number;
  readonly begin: () => void;
}

export class Lane {
  readonly #capacity: number;
  /** Ready operations, the next one last. */
  readonly #waiting: Waiting[] = [];
  #running = 0;

  constructor(capacity: number) {
    this.#capacity = capacity;
  }

  /** Resolves when it is the turn of operation `id`; `leave` ends the turn. */
  async enter(id: number): Promise<void> {
    if (this.#running < this.#capacity && this.#waiting.length === 0) {
      this.#running += 1;
      return;
    }
    await new Promise<void>((begin) => {
      let at = this.#waiting.length;
      while (at > 0 && this.#waiting[at - 1]!.id <= id) at -= 1;
      this.#waiting.splice(at, 0, { id, begin });
    });
  }

  leave(): void {
    assert(this.#running > 0, 'a lane is left by who entered it');
    const next = this.#waiting.pop();
    if (next === undefined) this.#running -= 1;
    else next.begin();
  }
}
