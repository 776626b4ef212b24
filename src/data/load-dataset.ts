/**
 * @file Data files as a token data set in memory.
 *
 * Text rows are tokenised, end in the end-of-text token (appended when missing, as TRL's SFT does)
 * and, like pre-tokenised rows, are cut to `maxLength` tokens. Label -100 means "not trained on".
 * The model predicts token t from the tokens before it, so the first label of a row never counts;
 * rows without any other label are left out.
 */
import { SpillwayError } from '../../core/errors.js';
import type { Logger } from '../../core/logger.js';
import { IGNORED_LABEL } from '../model/language-model-batch.js';
import { readJsonl } from './read-jsonl.js';
import { RowEncoder } from './row-encoder.js';
import type { EncodedRow } from './row-encoder.js';
import { TokenArena } from './token-arena.js';
import type { TokenRow } from './token-arena.js';

/** Rows of tokens, at least one, each with at least one label that counts. */
export interface TokenDataset {
  readonly length: number;
  /** Views; not to be written to. */
  row(index: number): TokenRow;
  rowLength(index: number): number;
  /** Tokens of the longest row. */
  readonly longestRow: number;
  readonly tokenCount: number;
  /** Rows cut to `maxLength`. */
  readonly truncatedCount: number;
  /** Rows left out because no label counts. */
  readonly skippedCount: number;
  /** Bytes of main memory that the tokens occupy. */
  readonly byteLength: number;
}

/** What `loadDataset` reads. */
export interface DatasetOptions {
  readonly files: readonly string[];
  readonly textField: string;
  readonly maxLength: number;
  /** Folder of tokenizer.json; only read when a text row comes. */
  readonly folder: string;
  /** Token ids are below this. */
  readonly vocabSize: number;
  /** Overrides the folder's. */
  readonly eosTokenId?: number;
  readonly logger: Logger;
}

/**
 * Reads all rows.
 *
 * @throws DATA_NOT_FOUND, DATA_INVALID, DATA_EMPTY, TOKENIZER_INVALID, TOKEN_OUT_OF_RANGE, IO_ERROR
 */
export async function loadDataset(options: DatasetOptions): Promise<TokenDataset> {
  const { folder, textField, eosTokenId } = options;
  const encoder = new RowEncoder({
    folder,
    textField,
    completionOnlyLoss: true,
    assistantOnlyLoss: false,
    eosTokenId,
  });
  const builder = new DatasetBuilder(options);
  for (const file of options.files) {
    for await (const line of readJsonl(file)) {
      builder.add(await encoder.encode(line), line.place);
    }
  }
  for (const note of encoder.notes) options.logger.warn(note);
  return builder.finish();
}

class DatasetBuilder {
  readonly #options: DatasetOptions;
  readonly #arena = new TokenArena();
  #longestRow = 0;
  #tokenCount = 0;
  #truncatedCount = 0;
  #skippedCount = 0;

  constructor(options: DatasetOptions) {
    this.#options = options;
  }

  add(row: EncodedRow, place: string): void {
    const { maxLength, vocabSize } = this.#options;
    let { inputIds, labels } = row;
    checkIds(inputIds, vocabSize, place, 'token id', false);
    if (labels !== undefined) checkIds(labels, vocabSize, place, 'label', true);
    if (inputIds.length > maxLength) {
      this.#truncatedCount += 1;
      inputIds = inputIds.slice(0, maxLength);
      labels = labels?.slice(0, maxLength);
    }
    if (!(labels ?? inputIds).some((label, t) => t > 0 && label !== IGNORED_LABEL)) {
      this.#skippedCount += 1;
      return;
    }
    this.#arena.append(inputIds, labels);
    this.#longestRow = Math.max(this.#longestRow, inputIds.length);
    this.#tokenCount += inputIds.length;
  }

  finish(): TokenDataset {
    const arena = this.#arena;
    const { files, logger, maxLength } = this.#options;
    if (arena.length === 0) {
      throw new SpillwayError(
        'DATA_EMPTY',
        'no row to train on; data_files hold no row with two tokens and a label that counts',
        { data_files: files, skippedRows: this.#skippedCount },
      );
    }
    if (this.#truncatedCount > 0) {
      logger.info(`data: ${this.#truncatedCount} rows cut to max_length ${maxLength}`);
    }
    if (this.#skippedCount > 0) {
      logger.warn(`data: ${this.#skippedCount} rows without a label that counts are left out`);
    }
    return {
      length: arena.length,
      row: (index) => arena.row(index),
      rowLength: (index) => arena.rowLength(index),
      longestRow: this.#longestRow,
      tokenCount: this.#tokenCount,
      truncatedCount: this.#truncatedCount,
      skippedCount: this.#skippedCount,
      byteLength: arena.byteLength,
    };
  }
}

function checkIds(
  ids: readonly number[] | Int32Array,
  vocabSize: number,
  place: string,
  what: string,
  mayIgnore: boolean,
): void {
  for (const id of ids) {
    if ((id >= 0 && id < vocabSize) || (mayIgnore && id === IGNORED_LABEL)) continue;
    throw new SpillwayError(
      'TOKEN_OUT_OF_RANGE',
      `${place} has the ${what} ${id}; the model knows 0 to ${vocabSize - 1}, so data and model do not match`,
      { id, vocabSize },
    );
  }
}
