// Goal: rows become the token ids, labels and counts that the definition gives; bad rows are named.
import { mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { isCoded } from '../../core/errors.js';
import { silentLogger } from '../../core/logger.js';
import { byteLevelTokenizer, END_OF_TEXT_ID } from '../../src/checkpoint/byte-level-tokenizer.js';
import { byteLevelTokenizerConfig } from '../../src/checkpoint/byte-level-tokenizer.js';
import { loadDataset } from '../../src/data/load-dataset.js';
import type { DatasetOptions, TokenDataset } from '../../src/data/load-dataset.js';
import { failureOf, temporaryFiles } from './temporary-files.js';

const file = temporaryFiles();
const bpeFolder = fileURLToPath(new URL('../../fixtures/tokenizers/bpe-tiny', import.meta.url));
const byteFolder = dirname(file(JSON.stringify(byteLevelTokenizer()), 'tokenizer.json'));
file(JSON.stringify(byteLevelTokenizerConfig(64)), 'tokenizer_config.json');

function load(contents: string | Uint8Array, more: Partial<DatasetOptions> = {}) {
  return loadDataset({
    files: [file(contents)],
    textField: 'text',
    maxLength: 64,
    folder: byteFolder,
    vocabSize: 257,
    logger: silentLogger,
    ...more,
  });
}

function jsonl(...rows: unknown[]): string {
  return rows.map((row) => JSON.stringify(row)).join('\n');
}

function rows(dataset: TokenDataset) {
  return Array.from({ length: dataset.length }, (_, index) => {
    const { inputIds, labels } = dataset.row(index);
    return { ids: [...inputIds], labels: [...labels] };
  });
}

describe('text rows', () => {
  it("have the Rust library's ids and end in one end-of-text token", async () => {
    const path = `${bpeFolder}/expected.json`;
    const documents = JSON.parse(readFileSync(path, 'utf8')) as { text: string; ids: number[] }[];
    const kept = documents.filter((document) => document.text !== '');
    const data = jsonl(...documents.map(({ text }) => ({ text })));
    const dataset = await load(data, { folder: bpeFolder, vocabSize: 400 });
    // <|endoftext|> has id 0 in this tokenizer; the empty text has nothing to predict.
    const ended = kept.map(({ ids }) => (ids.at(-1) === 0 ? ids : [...ids, 0]));
    expect(rows(dataset)).toEqual(ended.map((ids) => ({ ids, labels: ids })));
    expect(dataset.skippedCount).toBe(1);
    expect(dataset.tokenCount).toBe(ended.flat().length);
    expect(dataset.longestRow).toBe(Math.max(...ended.map((ids) => ids.length)));
  });

  it('are their UTF-8 bytes with the byte-level tokenizer, half surrogates replaced', async () => {
    await fc.assert(
      fc.asyncProperty(fc.string({ unit: 'binary', minLength: 1, maxLength: 30 }), async (text) => {
        const loaded = await load(jsonl({ text }), { maxLength: 1000 });
        expect([...loaded.row(0).inputIds]).toEqual([...Buffer.from(text, 'utf8'), END_OF_TEXT_ID]);
      }),
      { numRuns: 50 },
    );
    const loaded = await load('{"text": "a\\ud800b"}');
    expect([...loaded.row(0).inputIds]).toEqual([0x61, 0xef, 0xbf, 0xbd, 0x62, END_OF_TEXT_ID]);
  });

  it('get the end before truncation, which may cut it off again', async () => {
    const dataset = await load(jsonl({ text: 'abc' }, { text: 'abcd' }, { text: 'abcde' }), {
      maxLength: 4,
    });
    expect(rows(dataset).map((row) => row.ids)).toEqual([
      [97, 98, 99, END_OF_TEXT_ID],
      [97, 98, 99, 100],
      [97, 98, 99, 100],
    ]);
    expect(dataset.truncatedCount).toBe(2);
  });

  it('take the end-of-text id from the files in order, or none with a warning', async () => {
    const folder = (config: object, model: object) => {
      // A folder name per case: the files keep their names.
      const files = temporaryFolder();
      files('tokenizer.json', byteLevelTokenizer());
      files('tokenizer_config.json', config);
      return files('config.json', model);
    };
    const ends = async (where: string) => {
      const warnings: string[] = [];
      const logger = { ...silentLogger, warn: (message: string) => void warnings.push(message) };
      const loaded = await load(jsonl({ text: 'ab' }), { folder: where, logger });
      return { ids: [...loaded.row(0).inputIds].slice(2), warnings: warnings.length };
    };
    const wrapped = { eos_token: { content: '<|endoftext|>' } };
    expect(await ends(folder(wrapped, { eos_token_id: 5 }))).toEqual({ ids: [256], warnings: 0 });
    expect(await ends(folder({}, { eos_token_id: 5 }))).toEqual({ ids: [5], warnings: 0 });
    expect(await ends(folder({}, { eos_token_id: [7, 8] }))).toEqual({ ids: [7], warnings: 0 });
    expect(await ends(folder({}, {}))).toEqual({ ids: [], warnings: 1 });
    const unknown = folder({ eos_token: '</s>' }, {});
    expect((await failureOf(() => ends(unknown))).code).toBe('TOKENIZER_INVALID');
  });

  it('need a whole tokenizer.json', async () => {
    const text = jsonl({ text: 'a' });
    const missing = await failureOf(() => load(text, { folder: '/no/such' }));
    expect(missing.code).toBe('TOKENIZER_INVALID');
    for (const contents of ['{"model"', '[]', '{}', '{"model": {"type": "BPE"}}']) {
      const files = temporaryFolder();
      const folder = files('tokenizer.json', contents);
      const error = await failureOf(() => load(text, { folder }));
      expect(error.code).toBe('TOKENIZER_INVALID');
      expect(error.message).toContain('tokenizer.json');
    }
  });

  it('hold a symbol without id: refused, not trained on as token 0', async () => {
    const model = {
      type: 'WordPiece',
      unk_token: '[UNK]',
      continuing_subword_prefix: '##',
      max_input_chars_per_word: 100,
      vocab: { a: 0, b: 1 },
    };
    const tokenizer = { ...byteLevelTokenizer(), model, pre_tokenizer: { type: 'Whitespace' } };
    const folder = temporaryFolder()('tokenizer.json', { ...tokenizer, post_processor: null });
    const known = await load(jsonl({ text: 'a b' }), { folder });
    expect([...known.row(0).inputIds]).toEqual([0, 1]);
    const error = await failureOf(() => load(jsonl({ text: 'a z' }), { folder }));
    expect(error.code).toBe('TOKENIZER_INVALID');
  });

  it('are checked against the model as well', async () => {
    const error = await failureOf(() => load(jsonl({ text: 'abc' }), { vocabSize: 256 }));
    expect(error.code).toBe('TOKEN_OUT_OF_RANGE');
  });
});

describe('pre-tokenised rows', () => {
  it('need no tokenizer, get no end, keep their labels', async () => {
    const dataset = await load(
      jsonl(
        { input_ids: [1, 2, 3], text: 'ignored' },
        { input_ids: [4, 5, 6], labels: [-100, -100, 6], attention_mask: [1, 1, 1] },
        { input_ids: [7, 8], labels: null },
      ),
      { folder: '/no/such' },
    );
    expect(rows(dataset)).toEqual([
      { ids: [1, 2, 3], labels: [1, 2, 3] },
      { ids: [4, 5, 6], labels: [-100, -100, 6] },
      { ids: [7, 8], labels: [7, 8] },
    ]);
  });

  it('without a label that counts are skipped, also when truncation takes it', async () => {
    const dataset = await load(
      jsonl(
        { input_ids: [1, 2], labels: [1, -100] },
        { input_ids: [1] },
        { input_ids: [] },
        { input_ids: [1, 2, 3], labels: [-100, -100, 3] },
        { input_ids: [1, 2] },
      ),
      { maxLength: 2 },
    );
    expect(rows(dataset)).toEqual([{ ids: [1, 2], labels: [1, 2] }]);
    expect(dataset.skippedCount).toBe(4);
  });

  it('come back equal from the arena, across its chunks', async () => {
    const lengths = [300_000, 300_000, 600_000, 3];
    const data = jsonl(
      ...lengths.map((length, index) => ({
        input_ids: Array.from({ length }, (_, t) => (t * 7 + index) % 257),
        labels: Array.from({ length }, (_, t) => (t * 11 + index) % 257),
      })),
    );
    const dataset = await load(data, { maxLength: 3_000_000 });
    lengths.forEach((length, index) => {
      const { inputIds, labels } = dataset.row(index);
      expect(inputIds.length).toBe(length);
      expect(inputIds.every((id, t) => id === (t * 7 + index) % 257)).toBe(true);
      expect(labels.every((id, t) => id === (t * 11 + index) % 257)).toBe(true);
    });
  });

  it('may be thousands, at few bytes each', async () => {
    const dataset = await load(
      Array.from({ length: 5000 }, (_, index) => `{"input_ids":[${index % 257},1]}`).join('\n'),
    );
    expect(dataset.length).toBe(5000);
    expect(rows(dataset)[4321]!.ids).toEqual([4321 % 257, 1]);
    expect(dataset.byteLength).toBeLessThan(2 ** 22 + 5000 * 40);
  });
});

describe('a bad row', () => {
  it.each([
    ['{"input_ids": [1, 257]}', 'TOKEN_OUT_OF_RANGE', 'token id 257'],
    ['{"input_ids": [-1, 2]}', 'TOKEN_OUT_OF_RANGE', 'token id -1'],
    ['{"input_ids": [1, -100]}', 'TOKEN_OUT_OF_RANGE', 'token id -100'],
    ['{"input_ids": [1, 2], "labels": [1, -1]}', 'TOKEN_OUT_OF_RANGE', 'label -1'],
    ['{"input_ids": [1, 2], "labels": [300, 1]}', 'TOKEN_OUT_OF_RANGE', 'label 300'],
    ['{"input_ids": [1, 2], "labels": [1]}', 'DATA_INVALID', '1 labels for 2 input_ids'],
    ['{"input_ids": [1, 2], "attention_mask": [1, 0]}', 'DATA_INVALID', 'padding'],
    ['{"input_ids": [1, 2.5]}', 'DATA_INVALID', 'input_ids[1]'],
    ['{"input_ids": [1, "2"]}', 'DATA_INVALID', 'input_ids'],
    ['{"input_ids": "12"}', 'DATA_INVALID', 'input_ids'],
    ['{"content": "x"}', 'DATA_INVALID', 'columns: content'],
    ['{"a\\nb": "x"}', 'DATA_INVALID', 'columns: a\\nb)'],
    ['{"text": 5}', 'DATA_INVALID', 'no text in "text"'],
    ['[1, 2]', 'DATA_INVALID', 'not a JSON object'],
    ['null', 'DATA_INVALID', 'not a JSON object'],
    ['{"text": "x"', 'DATA_INVALID', 'not valid JSON'],
    ['{"text": "x"} {"text": "y"}', 'DATA_INVALID', 'not valid JSON'],
  ])('%s is %s', async (row, code, fragment) => {
    const error = await failureOf(() => load(`{"input_ids": [1, 2]}\n\n${row}\n`));
    expect(error.code).toBe(code);
    expect(error.message).toContain(fragment);
    expect(error.message).toMatch(/\.jsonl:3 /);
  });

  it('leaves nothing: DATA_EMPTY', async () => {
    expect((await failureOf(() => load(''))).code).toBe('DATA_EMPTY');
    const skipped = await failureOf(() => load('{"input_ids": [1]}'));
    expect(skipped.code).toBe('DATA_EMPTY');
    expect(skipped.facts['skippedRows']).toBe(1);
  });
});

it('loads mutated files or refuses them with a code and one line', async () => {
  const valid = Buffer.from(
    jsonl({ text: 'héllo' }, { input_ids: [1, 2, 3], labels: [-100, 2, 3] }, { text: 'a\nb' }),
  );
  const mutation = fc.record({
    at: fc.nat(valid.length - 1),
    byte: fc.oneof(fc.nat(255), fc.constantFrom(...Buffer.from('"{}[],:\\\n-0e.'))),
    kind: fc.constantFrom('replace', 'insert', 'delete', 'cut'),
  });
  const outcomes = new Set<string>();
  await fc.assert(
    fc.asyncProperty(fc.array(mutation, { minLength: 1, maxLength: 3 }), async (mutations) => {
      let bytes = [...valid];
      for (const { at, byte, kind } of mutations) {
        if (kind === 'replace') bytes[at] = byte;
        else if (kind === 'insert') bytes.splice(at, 0, byte);
        else if (kind === 'delete') bytes.splice(at, 1);
        else bytes = bytes.slice(0, at);
      }
      try {
        const dataset = await load(Uint8Array.from(bytes));
        for (const { ids, labels } of rows(dataset)) {
          expect(labels.length).toBe(ids.length);
          expect(ids.every((id) => id >= 0 && id < 257)).toBe(true);
        }
        outcomes.add('loaded');
      } catch (error) {
        if (!isCoded(error)) throw error;
        expect(error.code).toMatch(/^(DATA_INVALID|DATA_EMPTY|TOKEN_OUT_OF_RANGE)$/);
        expect(error.message).not.toContain('\n');
        outcomes.add(error.code);
      }
    }),
    { numRuns: 300 },
  );
  expect(outcomes).toContain('loaded');
  expect(outcomes).toContain('DATA_INVALID');
});

/** Writes named JSON files into one new folder; each call returns the folder. */
function temporaryFolder(): (name: string, contents: string | object) => string {
  const folder = mkdtempSync(join(byteFolder, 'folder-'));
  return (name, contents) => {
    const text = typeof contents === 'string' ? contents : JSON.stringify(contents);
    writeFileSync(join(folder, name), text);
    return folder;
  };
}
