/**
 * @file One JSONL line as a row: token ids with optional labels, or text to be tokenised.
 *
 * A row with `input_ids` is pre-tokenised, whatever else it has (TRL's rule); other columns are
 * ignored, except an `attention_mask` that hides tokens, which would change the result.
 */
import { SpillwayError } from '../../core/errors.js';
import type { JsonlLine } from './read-jsonl.js';

/** What a line holds, not yet checked against a vocabulary. */
export type DataRow =
  | { readonly kind: 'text'; readonly text: string }
  | {
      readonly kind: 'tokens';
      readonly inputIds: readonly number[];
      /** As long as `inputIds`; absent: every token is trained on. */
      readonly labels: readonly number[] | undefined;
    };

/** @throws DATA_INVALID with the line's place */
export function parseRow(line: JsonlLine, textField: string): DataRow {
  const row = parseObject(line);
  const ids = row['input_ids'];
  if (ids !== undefined && ids !== null) {
    const inputIds = integers(line, 'input_ids', ids);
    const labels = optionalIntegers(line, 'labels', row['labels']);
    const mask = optionalIntegers(line, 'attention_mask', row['attention_mask']);
    for (const [name, values] of Object.entries({ labels, attention_mask: mask })) {
      if (values !== undefined && values.length !== inputIds.length) {
        const lengths = `has ${values.length} ${name} for ${inputIds.length} input_ids`;
        throw invalid(line, `${lengths}; write one for each`);
      }
    }
    if (mask?.includes(0) === true) {
      throw invalid(line, 'has padding (attention_mask 0); write the row without it');
    }
    return { kind: 'tokens', inputIds, labels };
  }
  const text = Object.hasOwn(row, textField) ? row[textField] : undefined;
  if (typeof text !== 'string') {
    const columns = Object.keys(row).slice(0, 8).join(', ');
    const fact = text === undefined ? `has no "${textField}"` : `has no text in "${textField}"`;
    throw invalid(line, `${fact} and no input_ids; set dataset_text_field (columns: ${columns})`);
  }
  return { kind: 'text', text: withoutLoneSurrogates(text) };
}

function parseObject(line: JsonlLine): Readonly<Record<string, unknown>> {
  let value: unknown;
  try {
    value = JSON.parse(line.text);
  } catch (error) {
    throw invalid(line, 'is not valid JSON; write one object per line', error);
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw invalid(line, 'is not a JSON object; write one object per line');
  }
  return value as Record<string, unknown>;
}

function optionalIntegers(line: JsonlLine, name: string, value: unknown): number[] | undefined {
  return value === undefined || value === null ? undefined : integers(line, name, value);
}

function integers(line: JsonlLine, name: string, value: unknown): number[] {
  if (!Array.isArray(value)) throw invalid(line, `has ${name} that are no list of whole numbers`);
  const index = value.findIndex((item) => !Number.isSafeInteger(item));
  if (index >= 0) throw invalid(line, `has ${name} of which number ${index} is no whole number`);
  return value as number[];
}

/** JSON escapes can spell half a surrogate pair, which no tokenizer knows: U+FFFD, as in UTF-8. */
function withoutLoneSurrogates(text: string): string {
  return Buffer.from(text, 'utf8').toString('utf8');
}

function invalid(line: JsonlLine, message: string, cause?: unknown): SpillwayError {
  return new SpillwayError('DATA_INVALID', `${line.place} ${message}`, {}, cause);
}
