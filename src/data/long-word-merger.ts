/**
 * @file Byte-pair encoding of long words, in integers.
 *
 * The tokenizer library merges a word in linked objects, at 10 µs and some hundred bytes per
 * character; a tokenizer without pre-tokenizer takes a whole text for one word. This gives the same
 * symbols (lowest rank first, then the leftmost) from flat arrays and a heap of numbers.
 */

/** Longest word: its arrays take 40 bytes per character. */
const MAX_WORD_LENGTH = 1 << 24;

/** A heap entry is rank · this + position: exact in a double for ranks below 2^29. */
const POSITIONS = MAX_WORD_LENGTH;

/** The left and the right symbol are one key: ids are below this. */
const SYMBOLS = 1 << 26;

interface Merge {
  readonly rank: number;
  readonly symbol: number;
}

/** Merges words by the ranks of one tokenizer. */
export class LongWordMerger {
  readonly #ids = new Map<string, number>();
  readonly #symbols: string[] = [];
  readonly #merges = new Map<number, Merge>();

  /** @param merges pairs, best first */
  constructor(merges: readonly (readonly [string, string])[]) {
    merges.forEach(([left, right], rank) => {
      const key = this.#id(left) * SYMBOLS + this.#id(right);
      this.#merges.set(key, { rank, symbol: this.#id(left + right) });
    });
  }

  /** Symbols of the word. @throws RangeError beyond 2^24 characters */
  merge(characters: readonly string[]): string[] {
    const { length } = characters;
    if (length > MAX_WORD_LENGTH) throw new RangeError(`a word of ${length} characters`);
    const symbols = Int32Array.from(characters, (character) => this.#id(character));
    // Position of the neighbour; -1 or `length`: none. A merged right half has next -2.
    const previous = Int32Array.from({ length }, (_, index) => index - 1);
    const next = Int32Array.from({ length }, (_, index) => index + 1);
    const pairAt = (left: number): Merge | undefined => {
      const right = next[left]!;
      if (right < 0 || right >= length) return undefined;
      return this.#merges.get(symbols[left]! * SYMBOLS + symbols[right]!);
    };
    const heap = new NumberHeap(length);
    const offer = (left: number) => {
      const pair = pairAt(left);
      if (pair !== undefined) heap.push(pair.rank * POSITIONS + left);
    };
    for (let index = 0; index + 1 < length; index += 1) offer(index);
    while (heap.size > 0) {
      const entry = heap.pop();
      const left = entry % POSITIONS;
      const pair = pairAt(left);
      // Stale when either half has been merged since.
      if (pair?.rank !== (entry - left) / POSITIONS) continue;
      const right = next[left]!;
      symbols[left] = pair.symbol;
      next[left] = next[right]!;
      next[right] = -2;
      if (next[left] < length) previous[next[left]] = left;
      offer(left);
      if (previous[left]! >= 0) offer(previous[left]!);
    }
    const words: string[] = [];
    for (let at = 0; at < length; at = next[at]!) words.push(this.#symbols[symbols[at]!]!);
    return words;
  }

  #id(symbol: string): number {
    const known = this.#ids.get(symbol);
    if (known !== undefined) return known;
    this.#ids.set(symbol, this.#symbols.length);
    return this.#symbols.push(symbol) - 1;
  }
}

/** Binary heap, smallest number first. */
class NumberHeap {
  #values: Float64Array;
  size = 0;

  constructor(capacity: number) {
    this.#values = new Float64Array(Math.max(capacity, 1));
  }

  push(value: number): void {
    if (this.size === this.#values.length) {
      const larger = new Float64Array(2 * this.size);
      larger.set(this.#values);
      this.#values = larger;
    }
    const values = this.#values;
    let at = this.size;
    this.size += 1;
    while (at > 0) {
      const parent = (at - 1) >> 1;
      if (values[parent]! <= value) break;
      values[at] = values[parent]!;
      at = parent;
    }
    values[at] = value;
  }

  /** Only while `size` is above 0. */
  pop(): number {
    const values = this.#values;
    const top = values[0]!;
    this.size -= 1;
    const value = values[this.size]!;
    let at = 0;
    for (;;) {
      let child = 2 * at + 1;
      if (child >= this.size) break;
      if (child + 1 < this.size && values[child + 1]! < values[child]!) child += 1;
      if (values[child]! >= value) break;
      values[at] = values[child]!;
      at = child;
    }
    values[at] = value;
    return top;
  }
}
