/**
 * @file One JSONL line → token ids and labels, by TRL's rules for each form of row.
 *
 * Nothing is loaded before a row needs it: rows of `input_ids` need no tokenizer, rows of text no
 * template. An encoder is used by one caller at a time; worker threads each make their own from the
 * same options, and the same line gives the same row in each.
 */
import { SpillwayError, isCoded } from '../../core/errors.js';
import { IGNORED_LABEL } from '../model/language-model-batch.js';
import { renderAssistantSpans } from './assistant-spans.js';
import { loadChatTemplate } from './chat-template.js';
import type { ChatTemplate, RenderedChat, RenderOptions, TextSpan } from './chat-template.js';
import { encodingFingerprint } from './encoding-fingerprint.js';
import { parseRow } from './parse-row.js';
import type { ChatRow, CompletionRow, DataRow, TokensRow } from './parse-row.js';
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
  /** Rows with messages train on the assistant's turns only; rows of text are refused. */
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

/** Per token, 1 where it is trained on; undefined: all are. */
type Mask = readonly number[] | undefined;

const NO_EOS_NOTE = 'the model folder names no eos_token; none is appended to texts';
const BOUNDARY_NOTE =
  'a prompt ends within a token of prompt and completion; such a token counts as completion (end prompts before a space, or start completions with one)';
const DATE_NOTE =
  'the chat template writes the current date; runs on other days train on other tokens';

/** Encodes lines. */
export class RowEncoder {
  readonly #options: RowEncoderOptions;
  readonly #notes = new Set<string>();
  #tokenizer: TextTokenizer | undefined;
  #template: ChatTemplate | undefined;

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
    try {
      return await this.#encode(row);
    } catch (error) {
      // Only here is the place known.
      if (!isCoded(error)) throw error;
      throw new SpillwayError(error.code, `${line.place}: ${error.message}`, error.facts, error);
    }
  }

  /** SHA-256 (hex) of everything that decides ids and labels, beside the lines. */
  async fingerprint(): Promise<string> {
    return encodingFingerprint(this.#options);
  }

  async #encode(row: DataRow): Promise<EncodedRow> {
    switch (row.kind) {
      case 'tokens':
        return this.#tokens(row);
      case 'text': {
        const tokenizer = await this.#textTokenizer();
        const ids = knownIds(attempt(row.text, () => tokenizer.encode(row.text)));
        return { inputIds: this.#ended(ids, 0, tokenizer), labels: undefined };
      }
      case 'completion':
        return this.#completion(row);
      case 'chat':
        return this.#chat(row);
      default:
        return row satisfies never;
    }
  }

  #tokens(row: TokensRow): EncodedRow {
    const { inputIds, labels } = row;
    if (labels !== undefined) return { inputIds, labels };
    const completion = this.#options.completionOnlyLoss ? row.completionMask : undefined;
    return labelled(inputIds, [completion, row.assistantMask]);
  }

  async #completion({ prompt, completion }: CompletionRow): Promise<EncodedRow> {
    const tokenizer = await this.#textTokenizer();
    const encode = (text: string) => knownIds(attempt(text, () => tokenizer.encode(text)));
    const both = encode(prompt + completion);
    const promptLength = this.#sharedLength(encode(prompt), both);
    const ids = this.#ended(both, completion === '' ? both.length : 0, tokenizer);
    return this.#labelledCompletion(ids, promptLength, undefined);
  }

  async #chat(row: ChatRow): Promise<EncodedRow> {
    const template = await this.#chatTemplate();
    const { messages, promptLength, tools, variables } = row;
    const options: RenderOptions = { addGenerationPrompt: false, tools, variables };
    let rendered: RenderedChat | undefined;
    if (this.#options.assistantOnlyLoss) {
      rendered = renderAssistantSpans(template, messages, options);
    }
    const text = rendered?.text ?? template.render(messages, options);
    const tokenizer = await this.#loadTokenizer();
    const encode = (part: string) =>
      knownIds(attempt(part, () => tokenizer.encode(part, { addSpecialTokens: false })));
    let ids: readonly number[];
    let mask: Mask;
    if (rendered === undefined) {
      ids = encode(text);
    } else {
      const encoded = attempt(text, () => tokenizer.encodeWithOffsets(text));
      ids = knownIds(encoded.ids);
      mask = maskOf(text, rendered.spans, encoded.offsets);
    }
    if (promptLength === undefined) return labelled(ids, [mask]);
    const prompt = template.render(messages.slice(0, promptLength), {
      ...options,
      addGenerationPrompt: true,
    });
    return this.#labelledCompletion(ids, this.#sharedLength(encode(prompt), ids), mask);
  }

  /** `ids` and the end-of-text token, unless they have it after the first `from` already. */
  #ended(ids: readonly number[], from: number, tokenizer: TextTokenizer): readonly number[] {
    const eos = this.#options.eosTokenId ?? tokenizer.eosTokenId;
    const ended = ids.length > from && ids.at(-1) === eos;
    return eos === undefined || ended ? ids : [...ids, eos];
  }

  #labelledCompletion(ids: readonly number[], promptLength: number, mask: Mask): EncodedRow {
    if (!this.#options.completionOnlyLoss) return labelled(ids, [mask]);
    const completion = ids.map((_, index) => (index < promptLength ? 0 : 1));
    return labelled(ids, [completion, mask]);
  }

  /** Tokens that the prompt and the whole have in common at the start. */
  #sharedLength(prompt: readonly number[], whole: readonly number[]): number {
    const differing = prompt.findIndex((id, index) => id !== whole[index]);
    if (differing < 0) return prompt.length;
    if (this.#options.completionOnlyLoss) this.#notes.add(BOUNDARY_NOTE);
    return differing;
  }

  async #textTokenizer(): Promise<TextTokenizer> {
    if (this.#options.assistantOnlyLoss) {
      throw new SpillwayError(
        'DATA_INVALID',
        'the row is text and has no turns; write messages or unset assistant_only_loss',
      );
    }
    const tokenizer = await this.#loadTokenizer();
    if ((this.#options.eosTokenId ?? tokenizer.eosTokenId) === undefined) {
      this.#notes.add(NO_EOS_NOTE);
    }
    return tokenizer;
  }

  async #loadTokenizer(): Promise<TextTokenizer> {
    this.#tokenizer ??= await loadTokenizer(this.#options.folder);
    return this.#tokenizer;
  }

  async #chatTemplate(): Promise<ChatTemplate> {
    if (this.#template === undefined) {
      const { folder, chatTemplatePath } = this.#options;
      this.#template = await loadChatTemplate(folder, chatTemplatePath);
      if (this.#template.writesDate) this.#notes.add(DATE_NOTE);
    }
    return this.#template;
  }
}

/** What `encode` gives; its failures are plain errors, such as a RangeError for huge words. */
function attempt<T>(text: string, encode: () => T): T {
  try {
    return encode();
  } catch (error) {
    throw new SpillwayError(
      'DATA_INVALID',
      'the row cannot be tokenised; split or remove the row',
      { characters: text.length },
      error,
    );
  }
}

function knownIds(ids: readonly (number | undefined)[]): readonly number[] {
  if (ids.every((id) => typeof id === 'number')) return ids;
  // The library gives undefined or null for a symbol outside a vocabulary without an unknown token.
  throw new SpillwayError(
    'TOKENIZER_INVALID',
    'the row holds a symbol that the tokenizer does not know, and it has no unknown token',
  );
}

function labelled(inputIds: readonly number[], masks: readonly Mask[]): EncodedRow {
  const given = masks.filter((mask) => mask !== undefined);
  if (given.length === 0) return { inputIds, labels: undefined };
  const labels = inputIds.map((id, index) =>
    given.every((mask) => mask[index] === 1) ? id : IGNORED_LABEL,
  );
  return { inputIds, labels };
}

/** 1 for each token that overlaps a span, as transformers' `return_assistant_tokens_mask`. */
function maskOf(text: string, spans: readonly TextSpan[], offsets: Int32Array | undefined): Mask {
  if (offsets === undefined) {
    throw new SpillwayError(
      'DATA_INVALID',
      'the row is rewritten by the tokenizer in a way that leaves the assistant\u2019s tokens unknown; unset assistant_only_loss or remove the row',
    );
  }
  const bytes = byteSpans(text, spans);
  const mask: number[] = [];
  let next = 0;
  for (let token = 0; token < offsets.length; token += 2) {
    while (next < bytes.length && offsets[token]! >= bytes[next]!.end) next += 1;
    mask.push(next < bytes.length && offsets[token + 1]! > bytes[next]!.start ? 1 : 0);
  }
  return mask;
}

function byteSpans(text: string, spans: readonly TextSpan[]): readonly TextSpan[] {
  let character = 0;
  let byte = 0;
  const byteOf = (to: number) => {
    byte += Buffer.byteLength(text.slice(character, to));
    character = to;
    return byte;
  };
  return spans.map(({ start, end }) => ({ start: byteOf(start), end: byteOf(end) }));
}
