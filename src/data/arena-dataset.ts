/**
 * @file Rows of an arena as a data set: all of them, or those of one part of a split.
 */
import type { TokenArena } from './token-arena.js';
import type { TokenDataset, TokenRow } from './token-dataset.js';

/** What the files held besides the rows. */
export interface RowCounts {
  readonly truncatedCount: number;
  readonly skippedCount: number;
}

/** Unpacked rows. */
export class ArenaDataset implements TokenDataset {
  readonly packed = false;
  readonly length: number;
  readonly longestRow: number;
  readonly tokenCount: number;
  readonly truncatedCount: number;
  readonly skippedCount: number;
  readonly #arena: TokenArena;
  readonly #members: Uint32Array | undefined;

  /** @param members the rows to show, all by default; the arena may be shared */
  constructor(arena: TokenArena, counts: RowCounts, members?: Uint32Array) {
    this.#arena = arena;
    this.#members = members;
    this.length = members?.length ?? arena.length;
    this.truncatedCount = counts.truncatedCount;
    this.skippedCount = counts.skippedCount;
    let longestRow = 0;
    let tokenCount = 0;
    for (let index = 0; index < this.length; index += 1) {
      const length = this.rowLength(index);
      longestRow = Math.max(longestRow, length);
      tokenCount += length;
    }
    this.longestRow = longestRow;
    this.tokenCount = tokenCount;
  }

  get longestDocument(): number {
    return this.longestRow;
  }

  get documentCount(): number {
    return this.length;
  }

  /** Of the whole arena, also when only some rows are shown. */
  get byteLength(): number {
    return this.#arena.byteLength + (this.#members?.byteLength ?? 0);
  }

  row(index: number): TokenRow {
    const { inputIds, labels } = this.#arena.row(this.#memberOf(index));
    return { inputIds, labels, documents: undefined, positionIds: undefined };
  }

  rowLength(index: number): number {
    return this.#arena.rowLength(this.#memberOf(index));
  }

  #memberOf(index: number): number {
    if (!(index >= 0 && index < this.length)) throw new RangeError(`no row ${index}`);
    return this.#members?.[index] ?? index;
  }
}
