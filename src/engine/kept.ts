/**
 * @file Keeps what was made for a key, for a limited number of keys: the oldest leaves first.
 */
export class Kept<T> {
  readonly #limit: number;
  readonly #values = new Map<string, T>();

  constructor(limit: number) {
    this.#limit = limit;
  }

  /** What `make` gave for this key, now or before. */
  get(key: string, make: () => T): T {
    const known = this.#values.get(key);
    if (known !== undefined) return known;
    const made = make();
    const oldest = this.#values.keys().next().value;
    if (this.#values.size >= this.#limit && oldest !== undefined) this.#values.delete(oldest);
    this.#values.set(key, made);
    return made;
  }
}
