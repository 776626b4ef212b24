// Goal: a tokenizer.json whose ids, merges or tokens are none is refused in words, the others pass.
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { expect, it } from 'vitest';

import { findTokenizerFault } from '../../src/data/check-tokenizer-json.js';
import { RowEncoder } from '../../src/data/row-encoder.js';
import { CHAT_CASES, chatFolder } from './chat-fixtures.js';

it.each(CHAT_CASES)('finds no fault in the tokenizer of %s', (name) => {
  const text = readFileSync(join(chatFolder(name), 'tokenizer.json'), 'utf8');
  expect(findTokenizerFault(JSON.parse(text) as Record<string, unknown>)).toBeUndefined();
});

it.each([
  [{}, /no model/],
  [{ model: { type: 'BPE' } }, /no vocab/],
  [{ model: { vocab: { a: 0, b: -1 } } }, /no token ids/],
  [{ model: { vocab: { a: 2 ** 31 } } }, /no token ids/],
  [{ model: { vocab: { a: '0' } } }, /no token ids/],
  [{ model: { vocab: { a: 0.5 } } }, /no token ids/],
  [{ model: { vocab: { a: null } } }, /no token ids/],
  [{ model: { vocab: [['a', -1], ['b']] } }, /entry 1/],
  [{ model: { vocab: [['a', -1]], unk_id: 1 } }, /unk_id/],
  [{ model: { vocab: [['a', -1]], unk_id: '' } }, /unk_id/],
  [{ model: { vocab: {}, merges: 'a b' } }, /no list/],
  [{ model: { vocab: {}, merges: ['a b', 'ab'] } }, /merges\[1\]/],
  [{ model: { vocab: {}, merges: [['a', 'b'], ['a']] } }, /merges\[1\]/],
  [{ model: { vocab: {}, merges: [['a', 'b'], 'a b'] } }, /merges\[1\]/],
  [{ model: { vocab: {} }, added_tokens: {} }, /no list/],
  [{ model: { vocab: {} }, added_tokens: [{ id: 1, content: 2 }] }, /added_tokens\[0\]/],
  [
    { model: { vocab: {} }, added_tokens: [{ id: 1e9, content: '' }, { content: 'x' }] },
    /added_tokens\[1\]/,
  ],
])('names what is wrong with %j', (contents, fault) => {
  expect(findTokenizerFault(contents)).toMatch(fault);
});

it('refuses a symbol outside of a Unigram vocabulary without an unknown token', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'spillway-unigram-'));
  const model = { type: 'Unigram', unk_id: null, vocab: [['a', -1]] };
  const parts = { normalizer: null, pre_tokenizer: null, post_processor: null, decoder: null };
  writeFileSync(join(folder, 'tokenizer.json'), JSON.stringify({ ...parts, model }));
  const encoder = new RowEncoder({
    folder,
    textField: 'text',
    completionOnlyLoss: true,
    assistantOnlyLoss: false,
  });
  const encode = (text: string): Promise<unknown> =>
    encoder.encode({ place: 'f:1', text: JSON.stringify({ text }) });
  expect(await encode('aa')).toEqual({ inputIds: [0, 0], labels: undefined });
  await expect(encode('ab')).rejects.toMatchObject({ code: 'TOKENIZER_INVALID' });
  rmSync(folder, { recursive: true });
});
