/**
 * @file Rows of token ids in few large arrays: four bytes per token and sixteen per row, no objects.
 *
 * A row lies whole within one chunk, so that it can be read as a view. Rows are only appended.
 */

/** Tokens per chunk: 4 MiB, of which at most one row stays unused at the end. */
const CHUNK_TOKENS = 1 << 20;

/** Integers kept per row: chunk, start of the ids, length, start of the labels or -1. */
const ROW_FIELDS = 4;

/** A row as views into the arena; not to be written to. */
export interface TokenRow {
  readonly inputIds: Int32Array;
  /** The same view as `inputIds` when the row came without labels. */
  readonly labels: Int32Array;
}

/** Append-only store of rows. */
export class TokenArena {
  readonly #chunks: Int32Array[] = [];
  #used = 0;
  #rows = new Int32Array(1024 * ROW_FIELDS);
  #length = 0;

  /** Rows. */
  get length(): number {
    return this.#length;
  }

  /** Bytes allocated. */
  get byteLength(): number {
    return this.#chunks.reduce((sum, chunk) => sum + chunk.byteLength, this.#rows.byteLength);
  }

  /** Copies a row in. `labels`, when given, is as long as `inputIds`. */
  append(inputIds: ArrayLike<number>, labels: ArrayLike<number> | undefined): void {
    const { length } = inputIds;
    const start = this.#reserve(labels === undefined ? length : 2 * length);
    const chunk = this.#chunks.at(-1)!;
    chunk.set(inputIds, start);
    if (labels !== undefined) chunk.set(labels, start + length);
    if ((this.#length + 1) * ROW_FIELDS > this.#rows.length) this.#growRows();
    this.#rows.set(
      [this.#chunks.length - 1, start, length, labels === undefined ? -1 : start + length],
      this.#length * ROW_FIELDS,
    );
    this.#length += 1;
  }

  /** Row `index`, zero-based. @throws RangeError beyond the last row */
  row(index: number): TokenRow {
    if (!(index >= 0 && index < this.#length)) throw new RangeError(`no row ${index}`);
    const at = index * ROW_FIELDS;
    const chunk = this.#chunks[this.#rows[at]!]!;
    const length = this.#rows[at + 2]!;
    const view = (start: number) => chunk.subarray(start, start + length);
    const inputIds = view(this.#rows[at + 1]!);
    const labelsStart = this.#rows[at + 3]!;
    return { inputIds, labels: labelsStart < 0 ? inputIds : view(labelsStart) };
  }

  /** Tokens of row `index` without making views. */
  rowLength(index: number): number {
    return this.#rows[index * ROW_FIELDS + 2] ?? 0;
  }

  #reserve(tokens: number): number {
    const chunk = this.#chunks.at(-1);
    if (chunk === undefined || this.#used + tokens > chunk.length) {
      this.#chunks.push(new Int32Array(Math.max(CHUNK_TOKENS, tokens)));
      this.#used = 0;
    }
    const start = this.#used;
    this.#used += tokens;
    return start;
  }

  #growRows(): void {
    const larger = new Int32Array(this.#rows.length * 2);
    larger.set(this.#rows);
    this.#rows = larger;
  }
}
