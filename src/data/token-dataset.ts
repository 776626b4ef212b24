/**
 * @file What training and evaluation read: rows of tokens by number, held in memory.
 */

/** A row of T tokens; its arrays are not to be written to. */
export interface TokenRow {
  readonly inputIds: Int32Array;
  /** Unshifted; -100 is not trained on. May be the same array as `inputIds`. */
  readonly labels: Int32Array;
  /** Packed rows: number of each token's document in its row, ascending from 0. */
  readonly documents: Int32Array | undefined;
  /** Packed rows: each token's place in its document, from 0. */
  readonly positionIds: Int32Array | undefined;
}

/** Rows of tokens, at least one, each with at least one label that counts. */
export interface TokenDataset {
  /** Rows. */
  readonly length: number;
  /** Whether rows are packed: all of them have documents and positions, or none has. */
  readonly packed: boolean;
  /** Rows of the files that are kept; equals `length` unless `packed`. */
  readonly documentCount: number;
  /** Row `index`, zero-based. @throws RangeError beyond the last row */
  row(index: number): TokenRow;
  /** Tokens of row `index`. */
  rowLength(index: number): number;
  /** Tokens of the longest row. */
  readonly longestRow: number;
  /** Tokens of the longest row of the files that is kept; equals `longestRow` unless `packed`. */
  readonly longestDocument: number;
  readonly tokenCount: number;
  /** Rows of the files cut to `maxLength`. */
  readonly truncatedCount: number;
  /** Rows of the files left out because no label counts. */
  readonly skippedCount: number;
  /** Bytes of main memory that the tokens occupy. */
  readonly byteLength: number;
}

/** Data on their way into memory. */
export interface DatasetProgress {
  readonly split: 'train' | 'eval';
  /** Rows read so far, blank lines excluded. */
  readonly rows: number;
  readonly bytesDone: number;
  /** Size of the files; at least `bytesDone`. */
  readonly bytesTotal: number;
}
