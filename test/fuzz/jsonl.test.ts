// Goal: any mutation of a data file is refused with its line or gives the rows that it says.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import type { DataRow } from '../../src/data/parse-row.js';
import { parseRow } from '../../src/data/parse-row.js';
import { PythonFloat } from '../../src/data/python-values.js';
import { readJsonl } from '../../src/data/read-jsonl.js';
import { RowEncoder } from '../../src/data/row-encoder.js';
import { temporaryFolder } from '../checkpoint/temporary-folder.js';
import { chatFolder } from '../data/chat-fixtures.js';
import { fuzzReader } from './fuzz-reader.js';
import { byteMutations } from './mutate-bytes.js';
import { jsonMutations } from './mutate-json.js';

const ROWS = [
  { text: 'Grüße, 東京 \u2028 \ud83d\ude00', id: 7 },
  { input_ids: [1, 2, 3], labels: [-100, 2, 3], attention_mask: [1, 1, 1] },
  { prompt: 'What is 2 + 2?', completion: ' 4' },
  { prompt: [{ role: 'user', content: 'a' }], completion: [{ role: 'assistant', content: 'b' }] },
  {
    messages: [
      { role: 'system', content: 'Be brief.' },
      { role: 'user', content: 'Hi' },
      {
        role: 'assistant',
        content: 'Hello',
        tool_calls: [{ function: { name: 'f', arguments: {} } }],
      },
    ],
    tools: [{ type: 'function', function: { name: 'f', parameters: { type: 'object' } } }],
    chat_template_kwargs: { enable_thinking: false },
  },
];

const path = join(temporaryFolder('memory'), 'rows.jsonl');
const encoder = new RowEncoder({
  folder: chatFolder('qwen'),
  textField: 'text',
  completionOnlyLoss: true,
  assistantOnlyLoss: false,
});

/** The lines of a file that is valid UTF-8, by another way than the reader's. */
function linesOf(file: Buffer): string[] {
  const text = file.toString('utf8');
  return (text.startsWith('\uFEFF') ? text.slice(1) : text)
    .split('\n')
    .map((line) => line.trim())
    .filter((line) => line !== '');
}

function wellFormed(value: unknown): unknown {
  return typeof value === 'string' ? Buffer.from(value).toString() : value;
}

/** The values as JSON.parse gives them. */
function asJson(value: unknown): unknown {
  if (typeof value === 'bigint') return Number(value);
  if (value instanceof PythonFloat) return value.value;
  if (Array.isArray(value)) return value.map(asJson);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, asJson(item)]));
}

function checkRow(row: DataRow, line: string): void {
  const given = JSON.parse(line, (_key, value: unknown) => wellFormed(value)) as Record<
    string,
    unknown
  >;
  switch (row.kind) {
    case 'tokens':
      expect([row.inputIds, row.labels ?? null]).toEqual([
        given['input_ids'],
        given['labels'] ?? null,
      ]);
      break;
    case 'text':
      expect(row.text).toBe(given['text']);
      break;
    case 'completion':
      expect([row.prompt, row.completion]).toEqual([given['prompt'], given['completion']]);
      break;
    case 'chat': {
      const { prompt, completion, messages } = given as Record<string, unknown[]>;
      const whole = row.promptLength === undefined ? messages : [...prompt!, ...completion!];
      // Numbers that JavaScript would change are kept in forms of their own.
      expect(asJson(row.messages)).toEqual(whole);
      break;
    }
    default:
      row satisfies never;
  }
}

async function read(file: Buffer): Promise<void> {
  writeFileSync(path, file);
  const lines = linesOf(file);
  let index = 0;
  for await (const line of readJsonl(path)) {
    expect(line.text).toBe(lines[index]);
    const row = parseRow(line, 'text');
    checkRow(row, lines[index]!);
    const { inputIds, labels } = await encoder.encode(line);
    expect(labels?.length ?? inputIds.length).toBe(inputIds.length);
    if (row.kind !== 'tokens') {
      expect(inputIds.every((id) => Number.isSafeInteger(id) && id >= 0)).toBe(true);
    }
    index += 1;
  }
  expect(index).toBe(lines.length);
}

const codes = ['DATA_INVALID'];
const text = (rows: readonly unknown[], newline: string): string =>
  rows.map((row) => JSON.stringify(row)).join(newline);

describe('a data file', () => {
  it('is read or refused with mutated bytes', async () => {
    const valid = fc
      .record({
        rows: fc.shuffledSubarray(ROWS, { minLength: 1 }),
        newline: fc.constantFrom('\n', '\r\n', '\n\n'),
        mark: fc.constantFrom('', '\uFEFF'),
      })
      .map(({ rows, newline, mark }) => Buffer.from(mark + text(rows, newline)));
    const counts = await fuzzReader({
      name: 'jsonl bytes',
      share: 0.1,
      files: fc.tuple(valid, byteMutations).map(([file, mutate]) => mutate(file)),
      read,
      codes,
    });
    expect(Math.min(counts.loaded, counts.refused)).toBeGreaterThan(0);
  });

  it('is read or refused with mutated rows', async () => {
    const files = fc
      .tuple(fc.constantFrom(...ROWS), jsonMutations)
      .map(([row, mutate]) => Buffer.from(`${mutate(row)}\n${text(ROWS.slice(0, 1), '\n')}\n`));
    const counts = await fuzzReader({ name: 'jsonl rows', share: 0.1, files, read, codes });
    expect(Math.min(counts.loaded, counts.refused)).toBeGreaterThan(0);
  });
});
