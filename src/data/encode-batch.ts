/**
 * @file A batch of lines → the rows that a data set keeps, checked and cut, as one array that can be
 * moved between threads.
 *
 * Label -100 means "not trained on". The model predicts token t from the tokens before it, so the
 * first label of a row never counts; rows without any other label are left out.
 */
import { SpillwayError } from '../../core/errors.js';
import { IGNORED_LABEL } from '../model/language-model-batch.js';
import type { JsonlLine } from './read-jsonl.js';
import { RowEncoder } from './row-encoder.js';
import type { EncodedRow, RowEncoderOptions } from './row-encoder.js';

/** What decides the rows, beside the lines; plain data, so that it can cross to a worker. */
export interface BatchEncoderOptions extends RowEncoderOptions {
  /** Rows are cut to this number of tokens. */
  readonly maxLength: number;
  /** Token ids are below this. */
  readonly vocabSize: number;
}

/** The rows of a batch, in order; what is left out has no row. */
export interface EncodedBatch {
  /** Per row its number of tokens, negative when it has labels (equal lengths are never 0). */
  readonly lengths: Int32Array;
  /** Per row the ids, then the labels if it has any. */
  readonly tokens: Int32Array<ArrayBuffer>;
  readonly truncatedCount: number;
  readonly skippedCount: number;
  /** Warnings of the encoder so far. */
  readonly notes: readonly string[];
}

/** Encodes batches, one at a time. */
export class BatchEncoder {
  readonly #options: BatchEncoderOptions;
  readonly #encoder: RowEncoder;

  constructor(options: BatchEncoderOptions) {
    this.#options = options;
    this.#encoder = new RowEncoder(rowOptionsOf(options));
  }

  /** @throws DATA_INVALID, TOKENIZER_INVALID, TOKEN_OUT_OF_RANGE, for the first bad line */
  async encode(lines: readonly JsonlLine[]): Promise<EncodedBatch> {
    const { maxLength } = this.#options;
    const rows: EncodedRow[] = [];
    let truncatedCount = 0;
    for (const line of lines) {
      const row = await this.#encoder.encode(line);
      this.#check(row, line.place);
      if (row.inputIds.length > maxLength) truncatedCount += 1;
      const kept = cut(row, maxLength);
      if (hasTerm(kept)) rows.push(kept);
    }
    return {
      ...joined(rows),
      truncatedCount,
      skippedCount: lines.length - rows.length,
      notes: [...this.#encoder.notes],
    };
  }

  #check({ inputIds, labels }: EncodedRow, place: string): void {
    const { vocabSize } = this.#options;
    checkIds(inputIds, vocabSize, place, 'token id', false);
    if (labels !== undefined) checkIds(labels, vocabSize, place, 'label', true);
  }
}

/** The part of `options` that RowEncoder knows: its fingerprint must not see the rest. */
export function rowOptionsOf(options: RowEncoderOptions): RowEncoderOptions {
  const { folder, textField, completionOnlyLoss, assistantOnlyLoss } = options;
  const { chatTemplatePath, eosTokenId } = options;
  return {
    folder,
    textField,
    completionOnlyLoss,
    assistantOnlyLoss,
    ...(chatTemplatePath !== undefined && { chatTemplatePath }),
    ...(eosTokenId !== undefined && { eosTokenId }),
  };
}

function cut({ inputIds, labels }: EncodedRow, maxLength: number): EncodedRow {
  if (inputIds.length <= maxLength) return { inputIds, labels };
  return { inputIds: inputIds.slice(0, maxLength), labels: labels?.slice(0, maxLength) };
}

/** Whether any label counts. */
function hasTerm({ inputIds, labels }: EncodedRow): boolean {
  if (labels === undefined) return inputIds.length > 1;
  for (let t = 1; t < labels.length; t += 1) if (labels[t] !== IGNORED_LABEL) return true;
  return false;
}

function joined(rows: readonly EncodedRow[]): Pick<EncodedBatch, 'lengths' | 'tokens'> {
  const lengths = new Int32Array(rows.length);
  let total = 0;
  rows.forEach(({ inputIds, labels }, index) => {
    lengths[index] = labels === undefined ? inputIds.length : -inputIds.length;
    total += inputIds.length * (labels === undefined ? 1 : 2);
  });
  const tokens = new Int32Array(total);
  let at = 0;
  for (const { inputIds, labels } of rows) {
    for (const values of labels === undefined ? [inputIds] : [inputIds, labels]) {
      tokens.set(values, at);
      at += values.length;
    }
  }
  return { lengths, tokens };
}

function checkIds(
  ids: ArrayLike<number>,
  vocabSize: number,
  place: string,
  what: string,
  mayIgnore: boolean,
): void {
  for (let index = 0; index < ids.length; index += 1) {
    const id = ids[index]!;
    if ((id >= 0 && id < vocabSize) || (mayIgnore && id === IGNORED_LABEL)) continue;
    throw new SpillwayError(
      'TOKEN_OUT_OF_RANGE',
      `${place} has the ${what} ${id}; the model knows 0 to ${vocabSize - 1}, so data and model do not match`,
      { id, vocabSize },
    );
  }
}
