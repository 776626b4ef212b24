/**
 * @file One JSONL line as a row, in any of the forms that TRL's SFT trainer takes.
 *
 * In this order: `input_ids` (pre-tokenised, whatever else the row has), `prompt` and `completion`
 * (both text or both messages), `messages`, the text column. Other columns are ignored, except an
 * `attention_mask` that hides tokens, which would change the result. A column that is null counts as
 * absent. Messages, tools and template variables are as Python reads them.
 */
import { SpillwayError } from '../../core/errors.js';
import { MAX_JSON_DEPTH, isNestedDeeper } from '../../core/json-depth.js';
import { withPythonValues, type Reviver } from './python-values.js';
import type { JsonlLine } from './read-jsonl.js';

/** One message of a conversation, as the template sees it. */
export type ChatMessage = Readonly<Record<string, unknown>> & { readonly role: string };

/** What a line holds, not yet checked against a vocabulary. Masks and labels fit `inputIds`. */
export type DataRow = TokensRow | TextRow | CompletionRow | ChatRow;

/** Token ids. Labels absent: what the masks leave. A mask has 1 where a token is trained on. */
export interface TokensRow {
  readonly kind: 'tokens';
  readonly inputIds: readonly number[];
  readonly labels: readonly number[] | undefined;
  readonly completionMask: readonly number[] | undefined;
  readonly assistantMask: readonly number[] | undefined;
}

/** A text. */
export interface TextRow {
  readonly kind: 'text';
  readonly text: string;
}

/** A text of two parts. */
export interface CompletionRow {
  readonly kind: 'completion';
  readonly prompt: string;
  readonly completion: string;
}

/** A conversation of at least one message. */
export interface ChatRow {
  readonly kind: 'chat';
  readonly messages: readonly ChatMessage[];
  /** Of `messages`, those of the prompt; undefined: the row has no prompt and completion. */
  readonly promptLength: number | undefined;
  readonly tools: readonly unknown[] | undefined;
  /** More variables for the template (`chat_template_kwargs`). */
  readonly variables: Readonly<Record<string, unknown>>;
}

type Columns = Readonly<Record<string, unknown>>;

/** @throws DATA_INVALID with the line's place */
export function parseRow(line: JsonlLine, textField: string): DataRow {
  const row = parseObject(line);
  if (isPresent(row, 'input_ids')) return tokensRow(line, row);
  if (isPresent(row, 'prompt') && isPresent(row, 'completion')) return completionRow(line, row);
  if (isPresent(row, 'messages')) {
    const exact = exactColumns(line, row);
    return chatRow(line, exact, messageList(line, exact, 'messages'), undefined);
  }
  const text = isPresent(row, textField) ? row[textField] : undefined;
  if (typeof text !== 'string') {
    const columns = Object.keys(row).slice(0, 8).map(columnLabel).join(', ');
    const fact = text === undefined ? `has no "${textField}"` : `has no text in "${textField}"`;
    throw invalid(
      line,
      `${fact}, nor prompt and completion, messages or input_ids; set dataset_text_field (columns: ${columns})`,
    );
  }
  return { kind: 'text', text };
}

/** A column's name within one line of message: keys of a broken row can be anything. */
function columnLabel(name: string): string {
  return JSON.stringify(name.slice(0, 40)).slice(1, -1);
}

function tokensRow(line: JsonlLine, row: Columns): TokensRow {
  const inputIds = integers(line, 'input_ids', row['input_ids']);
  const optional = (name: string): number[] | undefined => {
    if (!isPresent(row, name)) return undefined;
    const values = integers(line, name, row[name]);
    if (values.length === inputIds.length) return values;
    const lengths = `has ${values.length} ${name} for ${inputIds.length} input_ids`;
    throw invalid(line, `${lengths}; write one for each`);
  };
  const mask = (name: string): number[] | undefined => {
    const values = optional(name);
    if (values?.some((value) => value !== 0 && value !== 1) === true) {
      throw invalid(line, `has ${name} that are not all 0 or 1`);
    }
    return values;
  };
  const labels = optional('labels');
  if (optional('attention_mask')?.includes(0) === true) {
    throw invalid(line, 'has padding (attention_mask 0); write the row without it');
  }
  const completionMask = mask('completion_mask');
  const assistantMask = mask('assistant_masks');
  return { kind: 'tokens', inputIds, labels, completionMask, assistantMask };
}

function completionRow(line: JsonlLine, row: Columns): CompletionRow | ChatRow {
  const { prompt, completion } = row;
  if (typeof prompt === 'string' && typeof completion === 'string') {
    return { kind: 'completion', prompt, completion };
  }
  if (!Array.isArray(prompt) || !Array.isArray(completion)) {
    throw invalid(
      line,
      'has a prompt and a completion that are neither both text nor both messages',
    );
  }
  const exact = exactColumns(line, row);
  const before = messageList(line, exact, 'prompt');
  const after = messageList(line, exact, 'completion');
  return chatRow(line, exact, [...before, ...after], before.length);
}

function chatRow(
  line: JsonlLine,
  row: Columns,
  messages: readonly ChatMessage[],
  promptLength: number | undefined,
): ChatRow {
  const variables = isPresent(row, 'chat_template_kwargs') ? row['chat_template_kwargs'] : {};
  if (!isObject(variables)) throw invalid(line, 'has chat_template_kwargs that are no JSON object');
  return { kind: 'chat', messages, promptLength, tools: toolList(line, row), variables };
}

function messageList(line: JsonlLine, row: Columns, name: string): ChatMessage[] {
  const value = row[name];
  if (!Array.isArray(value)) throw invalid(line, `has ${name} that are no list`);
  if (value.length === 0) throw invalid(line, `has an empty list of ${name}`);
  const index = value.findIndex((item) => !isObject(item) || typeof item['role'] !== 'string');
  if (index >= 0) {
    throw invalid(line, `has no role in ${name}[${index}]; write {"role", "content"}`);
  }
  return value as ChatMessage[];
}

/** Also as JSON in a string, as data sets with one type per column write it. */
function toolList(line: JsonlLine, row: Columns): readonly unknown[] | undefined {
  if (!isPresent(row, 'tools')) return undefined;
  let tools = row['tools'];
  if (typeof tools === 'string') {
    if (isNestedDeeper(tools, MAX_JSON_DEPTH)) throw invalid(line, 'has tools nested too deeply');
    try {
      tools = withPythonValues(tools, JSON.parse(tools));
    } catch (error) {
      throw invalid(line, 'has tools that are not valid JSON', error);
    }
  }
  if (!Array.isArray(tools)) throw invalid(line, 'has tools that are no list');
  return tools as unknown[];
}

function parseObject(line: JsonlLine): Columns {
  if (isNestedDeeper(line.text, MAX_JSON_DEPTH)) throw invalid(line, 'is nested too deeply');
  let value: unknown;
  try {
    value = JSON.parse(line.text, repairOf(line));
  } catch (error) {
    throw invalid(line, 'is not valid JSON; write one object per line', error);
  }
  if (!isObject(value)) throw invalid(line, 'is not a JSON object; write one object per line');
  return value;
}

/** The row as Python reads it. */
function exactColumns(line: JsonlLine, row: Columns): Columns {
  try {
    return withPythonValues(line.text, row, repairOf(line)) as Columns;
  } catch (error) {
    if (error instanceof RangeError) throw invalid(line, error.message, error);
    throw error;
  }
}

/** Only an escape can spell half a surrogate pair: the line itself was UTF-8. */
function repairOf(line: JsonlLine): Reviver | undefined {
  return /\\ud/i.test(line.text) ? withoutLoneSurrogates : undefined;
}

function isPresent(row: Columns, name: string): boolean {
  return Object.hasOwn(row, name) && row[name] !== null;
}

function integers(line: JsonlLine, name: string, value: unknown): number[] {
  if (!Array.isArray(value)) throw invalid(line, `has ${name} that are no list of whole numbers`);
  const index = value.findIndex((item) => !Number.isSafeInteger(item));
  if (index >= 0) throw invalid(line, `has no whole number in ${name}[${index}]`);
  return value as number[];
}

/** Half a surrogate pair, which no tokenizer knows, becomes U+FFFD, as in UTF-8. */
function withoutLoneSurrogates(_key: string, value: unknown): unknown {
  return typeof value === 'string' ? Buffer.from(value, 'utf8').toString('utf8') : value;
}

function isObject(value: unknown): value is Columns {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function invalid(line: JsonlLine, message: string, cause?: unknown): SpillwayError {
  return new SpillwayError('DATA_INVALID', `${line.place} ${message}`, {}, cause);
}
