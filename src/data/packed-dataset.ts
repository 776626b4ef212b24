/**
 * @file Rows of a data set, several to a sequence. Sequences are put together when they are asked
 * for: packing costs eight bytes per row of the files, not a second copy of the tokens.
 */
import { IGNORED_LABEL } from '../model/language-model-batch.js';
import { packRows } from './pack-rows.js';
import type { PackPlan } from './pack-rows.js';
import type { TokenDataset, TokenRow } from './token-dataset.js';

/** The documents of `source` in sequences of at most `maxLength` tokens. */
export class PackedDataset implements TokenDataset {
  readonly packed = true;
  readonly length: number;
  readonly longestRow: number;
  readonly #source: TokenDataset;
  readonly #plan: PackPlan;
  readonly #lengths: Uint32Array;

  /** @param source unpacked, no row longer than `maxLength` */
  constructor(source: TokenDataset, maxLength: number) {
    this.#source = source;
    const lengths = Uint32Array.from({ length: source.length }, (_, row) => source.rowLength(row));
    this.#plan = packRows(lengths, maxLength);
    const { starts, members } = this.#plan;
    this.length = starts.length - 1;
    this.#lengths = new Uint32Array(this.length);
    for (let sequence = 0; sequence < this.length; sequence += 1) {
      for (let at = starts[sequence]!; at < starts[sequence + 1]!; at += 1) {
        this.#lengths[sequence]! += lengths[members[at]!]!;
      }
    }
    this.longestRow = this.#lengths.reduce((most, length) => Math.max(most, length), 0);
  }

  get longestDocument(): number {
    return this.#source.longestDocument;
  }

  get documentCount(): number {
    return this.#source.documentCount;
  }

  get tokenCount(): number {
    return this.#source.tokenCount;
  }

  get truncatedCount(): number {
    return this.#source.truncatedCount;
  }

  get skippedCount(): number {
    return this.#source.skippedCount;
  }

  get byteLength(): number {
    const { starts, members } = this.#plan;
    const plan = starts.byteLength + members.byteLength + this.#lengths.byteLength;
    return this.#source.byteLength + plan;
  }

  /** New arrays; the first label of each document is masked. */
  row(index: number): TokenRow {
    const length = this.rowLength(index);
    const { starts, members } = this.#plan;
    const first = starts[index]!;
    const inputIds = new Int32Array(length);
    const labels = new Int32Array(length);
    const documents = new Int32Array(length);
    const positionIds = new Int32Array(length);
    let at = 0;
    for (let member = first; member < starts[index + 1]!; member += 1) {
      const document = this.#source.row(members[member]!);
      const end = at + document.inputIds.length;
      inputIds.set(document.inputIds, at);
      labels.set(document.labels, at);
      // What predicts it is the last token of another document.
      labels[at] = IGNORED_LABEL;
      documents.fill(member - first, at, end);
      for (let t = at; t < end; t += 1) positionIds[t] = t - at;
      at = end;
    }
    return { inputIds, labels, documents, positionIds };
  }

  rowLength(index: number): number {
    const length = this.#lengths[index];
    if (length === undefined) throw new RangeError(`no row ${index}`);
    return length;
  }
}
