/**
 * @file Rows of token ids in few large arrays: four bytes per token and sixteen per row, no objects.
 *
 * A row lies whole within one chunk, so that it can be read as a view. Rows are only appended.
 */

/** Tokens per chunk: 4 MiB, of which at most one row stays unused at the end. */
const CHUNK_TOKENS = 1 << 20;

/** Integers kept per row: chunk, start of the ids, length, start of the labels or -1. */
export const ROW_FIELDS = 4;

/** A row as views into the arena; not to be written to. */
export interface ArenaRow {
  readonly inputIds: Int32Array;
  /** The same view as `inputIds` when the row came without labels. */
  readonly labels: Int32Array;
}

/** What an arena holds, as views: enough to make it again. */
export interface ArenaContents {
  /** `ROW_FIELDS` integers per row; see there. */
  readonly rows: Int32Array<ArrayBuffer>;
  /** Tokens, cut to what is used. */
  readonly chunks: readonly Int32Array<ArrayBuffer>[];
}

/** Append-only store of rows. */
export class TokenArena {
  readonly #chunks: Int32Array<ArrayBuffer>[] = [];
  /** Tokens used of each chunk. */
  readonly #used: number[] = [];
  #rows = new Int32Array(1024 * ROW_FIELDS);
  #length = 0;
  #tokenCount = 0;

  /** An arena over `contents`, which it owns from then on. @throws RangeError when rows lie outside */
  static from(contents: ArenaContents): TokenArena {
    const arena = new TokenArena();
    arena.#chunks.push(...contents.chunks);
    arena.#used.push(...contents.chunks.map((chunk) => chunk.length));
    arena.#rows = contents.rows;
    arena.#length = Math.floor(contents.rows.length / ROW_FIELDS);
    for (let row = 0; row < arena.#length; row += 1) {
      const [chunk, ids, length, labels] = arena.#fieldsOf(row);
      const end = (arena.#used[chunk] ?? -1) - length;
      if (ids < 0 || length < 0 || ids > end || labels < -1 || labels > end) {
        throw new RangeError(`row ${row} lies outside its chunk`);
      }
      arena.#tokenCount += length;
    }
    return arena;
  }

  /** Rows. */
  get length(): number {
    return this.#length;
  }

  /** Ids of all rows; labels are not counted. */
  get tokenCount(): number {
    return this.#tokenCount;
  }

  /** Bytes allocated. */
  get byteLength(): number {
    return this.#chunks.reduce((sum, chunk) => sum + chunk.byteLength, this.#rows.byteLength);
  }

  /** Views of everything, valid until the next row is appended. */
  get contents(): ArenaContents {
    return {
      rows: this.#rows.subarray(0, this.#length * ROW_FIELDS),
      chunks: this.#chunks.map((chunk, index) => chunk.subarray(0, this.#used[index])),
    };
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
    this.#tokenCount += length;
  }

  /** Row `index`, zero-based. @throws RangeError beyond the last row */
  row(index: number): ArenaRow {
    if (!(index >= 0 && index < this.#length)) throw new RangeError(`no row ${index}`);
    const [chunkIndex, idsStart, length, labelsStart] = this.#fieldsOf(index);
    const chunk = this.#chunks[chunkIndex]!;
    const inputIds = chunk.subarray(idsStart, idsStart + length);
    const labels = labelsStart < 0 ? inputIds : chunk.subarray(labelsStart, labelsStart + length);
    return { inputIds, labels };
  }

  /** Tokens of row `index` without making views. */
  rowLength(index: number): number {
    return this.#rows[index * ROW_FIELDS + 2] ?? 0;
  }

  #fieldsOf(row: number): readonly [number, number, number, number] {
    const at = row * ROW_FIELDS;
    const rows = this.#rows;
    return [rows[at]!, rows[at + 1]!, rows[at + 2]!, rows[at + 3]!];
  }

  #reserve(tokens: number): number {
    const chunk = this.#chunks.at(-1);
    const used = this.#used.at(-1) ?? 0;
    if (chunk === undefined || used + tokens > chunk.length) {
      this.#chunks.push(new Int32Array(Math.max(CHUNK_TOKENS, tokens)));
      this.#used.push(tokens);
      return 0;
    }
    this.#used[this.#used.length - 1] = used + tokens;
    return used;
  }

  #growRows(): void {
    const larger = new Int32Array(Math.max(this.#rows.length, ROW_FIELDS) * 2);
    larger.set(this.#rows);
    this.#rows = larger;
  }
}
