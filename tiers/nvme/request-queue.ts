/** @file First-in, first-out queue whose `shift` costs the same at any length. */
export class RequestQueue<T> {
  #incoming: T[] = [];
  #outgoing: T[] = [];

  get length(): number {
    return this.#incoming.length + this.#outgoing.length;
  }

  push(item: T): void {
    this.#incoming.push(item);
  }

  shift(): T | undefined {
    if (this.#outgoing.length === 0) {
      this.#outgoing = this.#incoming.reverse();
      this.#incoming = [];
    }
    return this.#outgoing.pop();
  }
}
