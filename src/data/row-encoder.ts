/**
 * @file One JSONL line → token ids and labels, by TRL's rules for each form of row.
 *
 * Nothing is loaded before a row needs it: rows of `input_ids` need no tokenizer. An encoder is used
 * by one caller at a time; worker threads each make their own from the same options, and the same
 * line gives the same row in each.
 */
import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { SpillwayError } from '../../core/errors.js';
import { parseRow } from './parse-row.js';
import type { JsonlLine } from './read-jsonl.js';
import { loadTokenizer } from './text-tokenizer.js';
import type { TextTokenizer } from './text-tokenizer.js';

/** What decides ids and labels, beside the line; plain data, so that it can cross to a worker. */
export interface RowEncoderOptions {
  /** Model folder: tokenizer.json and the chat template. */
  readonly folder: string;
  readonly textField: string;
  /** Rows with prompt and completion train on the completion only. */
  readonly completionOnlyLoss: boolean;
  /** Rows with messages train on the assistant's turns only. */
  readonly assistantOnlyLoss: boolean;
  /** A .jinja file, or a folder with one; overrides `folder`'s template. */
  readonly chatTemplatePath?: string | undefined;
  /** Overrides the folder's. */
  readonly eosTokenId?: number | undefined;
}

/** A row of tokens, neither truncated nor checked against the model's vocabulary. */
export interface EncodedRow {
  readonly inputIds: readonly number[] | Int32Array;
  /** As long as `inputIds`; -100: not trained on. Undefined: every token is trained on. */
  readonly labels: readonly number[] | Int32Array | undefined;
}

/** To be raised whenever the same files and options come to give other ids or labels. */
const FORMAT_VERSION = 1;

const NO_EOS_NOTE = 'the model folder names no eos_token; none is appended to texts';

/** Encodes lines. */
export class RowEncoder {
  readonly #options: RowEncoderOptions;
  readonly #notes = new Set<string>();
  #tokenizer: TextTokenizer | undefined;

  constructor(options: RowEncoderOptions) {
    this.#options = options;
  }

  /** One-line warnings met so far, each once. */
  get notes(): ReadonlySet<string> {
    return this.#notes;
  }

  /**
   * The row in `line`.
   *
   * @throws DATA_INVALID with the line's place; TOKENIZER_INVALID
   */
  async encode(line: JsonlLine): Promise<EncodedRow> {
    const row = parseRow(line, this.#options.textField);
    if (row.kind === 'tokens') return { inputIds: row.inputIds, labels: row.labels };
    return { inputIds: await this.#encodeText(row.text, line.place), labels: undefined };
  }

  /** SHA-256 (hex) of everything that decides ids and labels, beside the lines. */
  async fingerprint(): Promise<string> {
    const { folder } = this.#options;
    const hash = createHash('sha256');
    hash.update(JSON.stringify([FORMAT_VERSION, this.#options]));
    for (const name of [
      'tokenizer.json',
      'tokenizer_config.json',
      'generation_config.json',
      'config.json',
    ]) {
      const contents = await readFile(join(folder, name)).catch(() => undefined);
      hash.update(`${name} ${contents?.length ?? 'absent'}\n`);
      if (contents !== undefined) hash.update(contents);
    }
    return hash.digest('hex');
  }

  async #encodeText(text: string, place: string): Promise<readonly number[]> {
    const tokenizer = await this.#loadTokenizer();
    let ids: readonly (number | undefined)[];
    try {
      ids = tokenizer.encode(text);
    } catch (error) {
      const message = `${place} cannot be tokenised; split or remove the row`;
      throw new SpillwayError('DATA_INVALID', message, { characters: text.length }, error);
    }
    // The library gives undefined for a symbol outside a vocabulary without an unknown token.
    if (ids.includes(undefined)) {
      const message = `${place} holds a symbol that the tokenizer does not know, and it has no unknown token`;
      throw new SpillwayError('TOKENIZER_INVALID', message);
    }
    const eos = this.#options.eosTokenId ?? tokenizer.eosTokenId;
    const known = ids as readonly number[];
    return eos === undefined || known.at(-1) === eos ? known : [...known, eos];
  }

  async #loadTokenizer(): Promise<TextTokenizer> {
    this.#tokenizer ??= await loadTokenizer(this.#options.folder);
    if ((this.#options.eosTokenId ?? this.#tokenizer.eosTokenId) === undefined) {
      this.#notes.add(NO_EOS_NOTE);
    }
    return this.#tokenizer;
  }
}
