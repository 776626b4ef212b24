// Goal: any mutation of a tokenizer's files is refused by name or gives ids that the files hold.
import { copyFileSync, existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';

import { RowEncoder } from '../../src/data/row-encoder.js';
import { temporaryFolder } from '../checkpoint/temporary-folder.js';
import { CHAT_CASES, chatFolder } from '../data/chat-fixtures.js';
import { fuzzReader } from './fuzz-reader.js';
import { byteMutations } from './mutate-bytes.js';
import { jsonMutations } from './mutate-json.js';

const TEXT = 'Hello wörld <|im_end|></s>, the 3 of 東京\n\n  it\u2019s';
const MESSAGES = [
  { role: 'user', content: TEXT },
  { role: 'assistant', content: 'yes' },
];
const LINES = [{ text: TEXT }, { prompt: 'a b', completion: ' c' }, { messages: MESSAGES }];

/** The two models of tokenizer.json that no chat fixture has. */
const OTHER_MODELS = [
  {
    added_tokens: [{ id: 0, content: '<unk>', special: true }],
    normalizer: null,
    post_processor: null,
    pre_tokenizer: { type: 'Metaspace', replacement: '▁', prepend_scheme: 'always', split: true },
    decoder: { type: 'Metaspace', replacement: '▁', prepend_scheme: 'always', split: true },
    model: {
      type: 'Unigram',
      unk_id: 0,
      vocab: [
        ['<unk>', 0],
        ['▁', -2],
        ['▁the', -3.5],
        ...'a b c d e f g h i l m n o r s t u w x y H'.split(' ').map((letter) => [letter, -4]),
      ],
      byte_fallback: false,
    },
  },
  {
    normalizer: { type: 'BertNormalizer', lowercase: true, strip_accents: null, clean_text: true },
    pre_tokenizer: { type: 'BertPreTokenizer' },
    post_processor: null,
    decoder: { type: 'WordPiece', prefix: '##', cleanup: true },
    model: {
      type: 'WordPiece',
      unk_token: '[UNK]',
      continuing_subword_prefix: '##',
      max_input_chars_per_word: 100,
      vocab: { '[UNK]': 0, the: 1, he: 2, '##l': 3, '##lo': 4, ',': 5, '3': 6 },
    },
  },
];

const root = temporaryFolder('memory');

/** A folder of valid files per case, with a chat template. */
const FOLDERS = [
  ...CHAT_CASES.map((name) => chatFolder(name)),
  ...OTHER_MODELS.map((tokenizer, index) => {
    const folder = join(root, `model-${index}`);
    mkdirSync(folder);
    writeFileSync(join(folder, 'tokenizer.json'), JSON.stringify(tokenizer));
    const config = { chat_template: '{% for m in messages %}{{ m.content }}{% endfor %}' };
    writeFileSync(join(folder, 'tokenizer_config.json'), JSON.stringify(config));
    return folder;
  }),
];
const NAMES = ['tokenizer.json', 'tokenizer_config.json', 'chat_template.json'];

beforeAll(() => {
  vi.spyOn(console, 'warn').mockImplementation(() => undefined);
});
afterAll(() => {
  vi.restoreAllMocks();
});

/** Every id that a tokenizer.json names, by JSON.parse alone. */
function namedIds(folder: string): Set<unknown> {
  const { model, added_tokens: added = [] } = JSON.parse(
    readFileSync(join(folder, 'tokenizer.json'), 'utf8'),
  ) as { model: { vocab: object }; added_tokens?: { id: unknown }[] };
  const ids = Array.isArray(model.vocab) ? model.vocab.keys() : Object.values(model.vocab);
  return new Set([...ids, ...added.map(({ id }) => id)]);
}

async function encodeAll(folder: string): Promise<void> {
  const encoder = new RowEncoder({
    folder,
    textField: 'text',
    completionOnlyLoss: true,
    assistantOnlyLoss: false,
  });
  let known: Set<unknown> | undefined;
  for (const line of LINES) {
    const row = await encoder.encode({ place: 'rows.jsonl:1', text: JSON.stringify(line) });
    known ??= namedIds(folder);
    const isKnown = (id: number): boolean => Number.isSafeInteger(id) && known!.has(id);
    expect(Array.from(row.inputIds).filter((id) => !isKnown(id) || id < 0)).toEqual([]);
    expect(row.labels?.length ?? row.inputIds.length).toBe(row.inputIds.length);
  }
}

/** Reads the folder of a valid case in which `file` stands for one of the files. */
async function read(folder: string, name: string, file: Buffer): Promise<void> {
  const copy = join(root, 'copy');
  mkdirSync(copy, { recursive: true });
  for (const other of [...NAMES, 'chat_template.jinja']) {
    if (existsSync(join(folder, other))) copyFileSync(join(folder, other), join(copy, other));
    else writeFileSync(join(copy, other), other.endsWith('.json') ? '{}' : '{{ messages }}');
  }
  writeFileSync(join(copy, name), file);
  await encodeAll(copy);
}

const places = new WeakMap<Buffer, readonly [folder: string, name: string]>();

/** Remembers where a mutated file belongs. */
function place(file: Buffer, folder: string, name: string): Buffer {
  places.set(file, [folder, name]);
  return file;
}

const codes = ['TOKENIZER_INVALID', 'DATA_INVALID'];

/** Which valid file is mutated; the tokenizer itself mostly. */
const targets = fc
  .tuple(
    fc.constantFrom(...FOLDERS),
    fc.oneof({ weight: 5, arbitrary: fc.constant(NAMES[0]!) }, fc.constantFrom(...NAMES.slice(1))),
  )
  .filter(([folder, name]) => existsSync(join(folder, name)));

describe('tokenizer files', () => {
  it.each(FOLDERS)('are read in %s as they are', async (folder) => {
    await read(folder, NAMES[0]!, readFileSync(join(folder, NAMES[0]!)));
  });

  it('are read or refused with mutated bytes', async () => {
    const counts = await fuzzReader({
      name: 'tokenizer bytes',
      share: 0.06,
      files: fc.tuple(targets, byteMutations).map(([[folder, name], mutate]) => {
        return place(mutate(readFileSync(join(folder, name))), folder, name);
      }),
      read: (file) => read(...places.get(file)!, file),
      codes,
    });
    expect(Math.min(counts.loaded, counts.refused)).toBeGreaterThan(0);
  });

  it('are read or refused with mutated fields', async () => {
    const counts = await fuzzReader({
      name: 'tokenizer fields',
      share: 0.14,
      files: fc.tuple(targets, jsonMutations).map(([[folder, name], mutate]) => {
        const valid: unknown = JSON.parse(readFileSync(join(folder, name), 'utf8'));
        return place(Buffer.from(mutate(valid)), folder, name);
      }),
      read: (file) => read(...places.get(file)!, file),
      codes,
    });
    expect(Math.min(counts.loaded, counts.refused)).toBeGreaterThan(0);
  });
});
