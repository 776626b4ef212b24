// Goal: each form of row is taken by TRL's rules, or refused by name with its place and a remedy.
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterAll, describe, expect, it } from 'vitest';
import { isCoded } from '../../core/errors.js';
import { ENCODING_LIBRARIES } from '../../src/data/encoding-fingerprint.js';
import { RowEncoder } from '../../src/data/row-encoder.js';
import type { RowEncoderOptions } from '../../src/data/row-encoder.js';
import { loadTokenizer } from '../../src/data/text-tokenizer.js';
import { chatFolder } from './chat-fixtures.js';
import { failureOf } from './temporary-files.js';

const root = mkdtempSync(join(tmpdir(), 'spillway-rows-'));
afterAll(() => {
  rmSync(root, { recursive: true });
});
let folderCount = 0;

/** A copy of a fixture's folder with some files written anew; null takes one away. */
function folderOf(name: string, files: Readonly<Record<string, string | object | null>> = {}) {
  folderCount += 1;
  const folder = join(root, String(folderCount));
  cpSync(chatFolder(name), folder, { recursive: true });
  for (const [file, contents] of Object.entries(files)) {
    if (contents === null) rmSync(join(folder, file), { force: true });
    else {
      const text = typeof contents === 'string' ? contents : JSON.stringify(contents);
      writeFileSync(join(folder, file), text);
    }
  }
  return folder;
}

function encoder(more: Partial<RowEncoderOptions> = {}): RowEncoder {
  return new RowEncoder({
    folder: chatFolder('chatml'),
    textField: 'text',
    completionOnlyLoss: true,
    assistantOnlyLoss: false,
    ...more,
  });
}

function lineOf(row: unknown) {
  const text = typeof row === 'string' ? row : JSON.stringify(row);
  return { place: 'rows.jsonl:3', text };
}

async function refusal(row: unknown, more: Partial<RowEncoderOptions> = {}) {
  const error = await failureOf(() => encoder(more).encode(lineOf(row)));
  expect(error.message).toMatch(/^rows\.jsonl:3/);
  expect(error.message).not.toContain('\n');
  return error;
}

const CHAT = [
  { role: 'user', content: 'Hi' },
  { role: 'assistant', content: 'Hello!' },
];

describe('the form of a row', () => {
  it('is the first of input_ids, prompt and completion, messages and text; null counts as absent', async () => {
    const rows = encoder();
    const ids = async (row: object) => [...(await rows.encode(lineOf(row))).inputIds];
    const [text, pair, chat] = [
      { text: 'x' },
      { prompt: 'a', completion: 'b' },
      { messages: CHAT },
    ];
    const alone = [await ids(chat), await ids(pair), await ids({ input_ids: [5, 6] })];
    expect(await ids({ ...text, ...chat })).toEqual(alone[0]);
    expect(await ids({ ...text, ...chat, ...pair })).toEqual(alone[1]);
    expect(await ids({ ...text, ...chat, ...pair, input_ids: [5, 6] })).toEqual(alone[2]);
    const absent = { input_ids: null, prompt: 'a', completion: null, messages: null };
    expect(await ids({ ...text, ...absent })).toEqual(await ids(text));
  });

  it.each([
    [{ content: 'x' }, 'has no "text", nor prompt and completion, messages or input_ids'],
    [{ prompt: 'only' }, 'columns: prompt'],
    [{ prompt: 'a', completion: CHAT }, 'neither both text nor both messages'],
    [{ prompt: CHAT, completion: [] }, 'empty list of completion'],
    [{ messages: [] }, 'empty list of messages'],
    [{ messages: 'Hi' }, 'messages that are no list'],
    [{ messages: [CHAT[0], { content: 'x' }] }, 'has no role in messages[1]'],
    [{ messages: ['x'] }, 'has no role in messages[0]'],
    [{ input_ids: [1, 2.5] }, 'rows.jsonl:3 has no whole number in input_ids[1]'],
    [{ messages: CHAT, tools: '[{' }, 'tools that are not valid JSON'],
    [{ messages: CHAT, tools: {} }, 'tools that are no list'],
    [{ messages: CHAT, chat_template_kwargs: [] }, 'chat_template_kwargs'],
    [{ input_ids: [1, 2], completion_mask: [1] }, '1 completion_mask for 2 input_ids'],
    [{ input_ids: [1, 2], assistant_masks: [1, 2] }, 'not all 0 or 1'],
    ['{"text": "x"', 'not valid JSON'],
    [`{"messages": ${'['.repeat(100_000)}`, 'rows.jsonl:3 is n'],
  ])('%j is refused: %s', async (row, fragment) => {
    const error = await refusal(row);
    expect(error.code).toBe('DATA_INVALID');
    expect(error.message).toContain(fragment);
  });
});

describe('pre-tokenised rows', () => {
  it('are masked by what they bring: completion_mask when wanted, assistant_masks always', async () => {
    const row = {
      input_ids: [5, 6, 7, 8],
      completion_mask: [0, 1, 1, 1],
      assistant_masks: [1, 1, 0, 1],
    };
    const labels = async (completionOnlyLoss: boolean, more: object = {}) =>
      (await encoder({ completionOnlyLoss, folder: '/no' }).encode(lineOf({ ...row, ...more })))
        .labels;
    expect(await labels(true)).toEqual([-100, 6, -100, 8]);
    expect(await labels(false)).toEqual([5, 6, -100, 8]);
    expect(await labels(true, { labels: [1, 2, 3, 4] })).toEqual([1, 2, 3, 4]);
    expect(await labels(false, { assistant_masks: null })).toBeUndefined();
  });
});

describe('text rows', () => {
  it('end in one end of text, which the options may override', async () => {
    const tokenizer = await loadTokenizer(chatFolder('chatml'));
    const eos = tokenizer.eosTokenId!;
    const ids = async (text: string, more: Partial<RowEncoderOptions> = {}) =>
      (await encoder(more).encode(lineOf({ text }))).inputIds;
    const plain = tokenizer.encode('Paris');
    expect(await ids('Paris')).toEqual([...plain, eos]);
    expect(await ids('Paris<|im_end|>')).toEqual([...plain, eos]);
    expect(await ids('')).toEqual([eos]);
    expect(await ids('Paris', { eosTokenId: 3 })).toEqual([...plain, 3]);
    expect(await ids('a\ud800b')).toEqual(await ids('a\ufffdb'));
  });

  it('have no turns to train on', async () => {
    for (const row of [{ text: 'x' }, { prompt: 'a', completion: 'b' }]) {
      const error = await refusal(row, { assistantOnlyLoss: true });
      expect(error.code).toBe('DATA_INVALID');
      expect(error.message).toContain('unset assistant_only_loss');
    }
  });
});

describe('messages', () => {
  it('need a template, which chat_template_path gives as a file or a folder', async () => {
    const bare = { eos_token: '<|im_end|>' };
    const folder = folderOf('chatml', { 'tokenizer_config.json': bare });
    const error = await refusal({ messages: CHAT }, { folder });
    expect(error.code).toBe('DATA_INVALID');
    expect(error.message).toContain('train with chat_template_path');
    const file = join(folder, 'own.jinja');
    writeFileSync(file, '\ufeff{{ messages[0].content }}{{ eos_token }}');
    const tokenizer = await loadTokenizer(folder);
    const ids = async (chatTemplatePath: string) =>
      (await encoder({ folder, chatTemplatePath }).encode(lineOf({ messages: CHAT }))).inputIds;
    expect(await ids(file)).toEqual(tokenizer.encode('Hi<|im_end|>'));
    const usual = await encoder().encode(lineOf({ messages: CHAT }));
    expect(await ids(chatFolder('chatml'))).toEqual(usual.inputIds);
    const missing = await refusal(
      { messages: CHAT },
      { chatTemplatePath: join(folder, 'no.jinja') },
    );
    expect(missing.code).toBe('TOKENIZER_INVALID');
    expect(missing.message).toContain('check chat_template_path');
  });

  it.each([
    ['{% if %}', 'cannot be used'],
    ['{% for m in messages %}', 'cannot be used'],
    ['{% generation %}x', 'cannot be used'],
  ])('refuse the broken template %s', async (source, fragment) => {
    const error = await refusal(
      { messages: CHAT },
      { folder: folderOf('llama3', { 'chat_template.jinja': source }) },
    );
    expect(error.code).toBe('TOKENIZER_INVALID');
    expect(error.message).toContain(fragment);
  });

  it('with tools take the template made for tools; tools may be JSON in a string', async () => {
    const templates = [
      { name: 'default', template: 'plain' },
      { name: 'tool_use', template: '{{ tools | tojson }}' },
    ];
    const config = { eos_token: '<|im_end|>', chat_template: templates };
    const folder = folderOf('chatml', { 'tokenizer_config.json': config });
    const tokenizer = await loadTokenizer(folder);
    const tools = [{ name: 'f' }];
    const ids = async (row: object) =>
      (await encoder({ folder }).encode(lineOf({ messages: CHAT, ...row }))).inputIds;
    expect(await ids({})).toEqual(tokenizer.encode('plain'));
    expect(await ids({ tools })).toEqual(tokenizer.encode('[{"name": "f"}]'));
    expect(await ids({ tools: JSON.stringify(tools) })).toEqual(await ids({ tools }));
    const only = { ...config, chat_template: [templates[1]] };
    const error = await refusal(
      { messages: CHAT },
      { folder: folderOf('chatml', { 'tokenizer_config.json': only }) },
    );
    expect(error.message).toContain('has no template "default", only tool_use');
  });

  it.each([
    [
      'a turn without the header that the generation prompt gives elsewhere',
      "{% for m in messages %}{% if m.role == 'user' %}<u>{{ m.content }}{% elif m.role == 'tool' %}<t>{{ m.content }}</t>{% else %}{% if loop.index0 == 1 %}<a>{% endif %}{{ m.content }}</a>{% endif %}{% endfor %}{% if add_generation_prompt and messages[-1].role != 'tool' %}<a>{% endif %}",
      [...CHAT, { role: 'tool', content: '1' }, { role: 'assistant', content: 'one' }],
      3,
    ],
    [
      'headers that the generation prompt never gives',
      '{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}',
      CHAT,
      1,
    ],
    [
      'a first turn whose header is there twice',
      "{{ messages[0].content[0] }}<a>{% for m in messages %}{% if m.role == 'assistant' %}<a>{% endif %}{{ m.content }}{% endfor %}{% if add_generation_prompt %}<a>{% endif %}",
      CHAT.slice(1),
      0,
    ],
  ])('are refused with assistant_only_loss for %s', async (_, source, messages, index) => {
    const folder = folderOf('llama3', { 'chat_template.jinja': source });
    const error = await refusal({ messages }, { folder, assistantOnlyLoss: true });
    expect(error.code).toBe('DATA_INVALID');
    expect(error.facts['message']).toBe(index);
    expect(error.message).toContain(`does not show where the header of message ${index} ends`);
    expect(error.message).toContain('{% generation %}');
  });

  it('keep the numbers of tools that stand in a string, and refuse those that Python refuses', async () => {
    const options = { folder: chatFolder('qwen') };
    const rowWith = (tools: string) =>
      `{"messages": ${JSON.stringify(CHAT)}, "tools": ${JSON.stringify(tools)}}`;
    const { inputIds } = await encoder(options).encode(lineOf(rowWith('[{"minimum": 1.0}]')));
    const tokenizer = await loadTokenizer(options.folder);
    expect(tokenizer.decode([...inputIds])).toContain('{"minimum": 1.0}');
    const digits = '1'.repeat(4301);
    const message = `{"role": "user", "content": "x", "count": ${digits}}`;
    const error = await refusal(`{"messages": [${message}]}`, options);
    expect(error.code).toBe('DATA_INVALID');
    expect(error.message).toContain('whole number of more than 4300 digits');
  });

  it('whose earlier turns are rendered otherwise later are refused with assistant_only_loss', async () => {
    // Thinking is only kept in the last turn, and there are no generation blocks.
    const source =
      "{% for m in messages %}<{{ m.role }}>{% if loop.last or m.role == 'user' %}{{ m.content }}{% else %}cut{% endif %}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}";
    const folder = folderOf('llama3', { 'chat_template.jinja': source });
    const options = { folder, assistantOnlyLoss: true };
    const row = await encoder(options).encode(lineOf({ messages: CHAT }));
    const tokenizer = await loadTokenizer(folder);
    const trained = row.inputIds.filter((_, index) => row.labels![index] !== -100);
    expect(tokenizer.decode([...trained])).toBe('Hello!');
    const error = await refusal({ messages: [...CHAT, ...CHAT] }, options);
    expect(error.code).toBe('DATA_INVALID');
    expect(error.facts['message']).toBe(1);
    expect(error.message).toContain('{% generation %}');
  });

  it('may hold the private-use characters that mark generation blocks', async () => {
    const options = { folder: chatFolder('thinking'), assistantOnlyLoss: true };
    const tokenizer = await loadTokenizer(options.folder);
    const trained = async (content: string) => {
      const messages = [CHAT[0], { role: 'assistant', content }];
      const { inputIds, labels } = await encoder(options).encode(lineOf({ messages }));
      return tokenizer.decode([...inputIds].filter((_, index) => labels![index] !== -100));
    };
    const marks = '\ue000a\ue001b\ue000';
    expect(await trained(marks)).toBe(`${marks}<|im_end|>`);
  });

  it('of a generation block whose text is changed afterwards are refused', async () => {
    const source =
      '{% set all %}{% generation %}{{ messages[1].content }}{% endgeneration %}{% endset %}{{ all | length }}';
    const folder = folderOf('llama3', { 'chat_template.jinja': source });
    const error = await refusal({ messages: CHAT }, { folder, assistantOnlyLoss: true });
    expect(error.message).toContain('generation blocks cannot be told apart');
  });
});

it('notes say once what a reader should know', async () => {
  const folder = folderOf('llama3', {
    'chat_template.jinja': "{{ strftime_now('%d %b %Y') }}{{ messages[0].content }}",
    'tokenizer_config.json': {},
  });
  const rows = encoder({ folder });
  for (let count = 0; count < 2; count += 1) {
    await rows.encode(lineOf({ text: 'x' }));
    await rows.encode(lineOf({ messages: CHAT }));
    await rows.encode(lineOf({ prompt: 'The cap', completion: 'ital of France' }));
  }
  const notes = [...rows.notes];
  expect(notes.length).toBe(3);
  expect(notes.join(' ')).toMatch(/eos_token.*date.*prompt|eos_token.*prompt.*date/);
  for (const note of notes) expect(note).not.toContain('\n');
});

describe('the fingerprint', () => {
  it('changes with every file and option that decides ids, and with nothing else', async () => {
    const files = ['tokenizer.json', 'tokenizer_config.json', 'chat_template.jinja'];
    const print = (folder: string, more: Partial<RowEncoderOptions> = {}) =>
      encoder({ folder, ...more }).fingerprint();
    const first = await print(folderOf('llama3'));
    expect(await print(folderOf('llama3', { 'README.md': 'x' }))).toBe(first);
    const config = JSON.parse(
      readFileSync(join(chatFolder('llama3'), files[1]!), 'utf8'),
    ) as object;
    const others = [
      await print(folderOf('llama3', { [files[0]!]: '{}' })),
      await print(folderOf('llama3', { [files[1]!]: { ...config, x: 1 } })),
      await print(folderOf('llama3', { [files[2]!]: 'x' })),
      await print(folderOf('llama3', { [files[2]!]: null })),
      await print(folderOf('llama3'), { textField: 'content' }),
      await print(folderOf('llama3'), { completionOnlyLoss: false }),
      await print(folderOf('llama3'), { assistantOnlyLoss: true }),
      await print(folderOf('llama3'), { eosTokenId: 1 }),
      await print(folderOf('llama3'), { chatTemplatePath: chatFolder('chatml') }),
    ];
    expect(new Set([first, ...others]).size).toBe(others.length + 1);
    expect(first).toMatch(/^[0-9a-f]{64}$/);
  });

  it('names the versions of the libraries that are installed', () => {
    for (const [name, version] of Object.entries(ENCODING_LIBRARIES)) {
      const path = new URL(`../../node_modules/${name}/package.json`, import.meta.url);
      const installed = JSON.parse(readFileSync(path, 'utf8')) as { version: string };
      expect(installed.version).toBe(version);
    }
  });
});

it('any conversation has labels that fit its ids, or a code', async () => {
  const content = fc.oneof(
    fc.string({ unit: 'binary', maxLength: 12 }),
    fc.constantFrom('<|im_end|>', ' ', '\n\n', '\ufeff', 'e\u0301', '\u1100\u1161', '▁', '</s>'),
    fc.constant(null),
  );
  const message = fc.record({ role: fc.constantFrom('user', 'assistant', 'system'), content });
  const messages = fc.array(message, { minLength: 1, maxLength: 4 });
  const names = ['blocks-prefix', 'thinking', 'qwen', 'zephyr', 'mistral', 'gemma'];
  const encoders = names.map((name) =>
    encoder({ folder: chatFolder(name), assistantOnlyLoss: true }),
  );
  let encoded = 0;
  await fc.assert(
    fc.asyncProperty(messages, async (chat) => {
      for (const rows of encoders) {
        try {
          const { inputIds, labels } = await rows.encode(lineOf({ messages: chat }));
          expect(labels!.length).toBe(inputIds.length);
          expect(labels!.every((label, t) => label === -100 || label === inputIds[t])).toBe(true);
          encoded += 1;
        } catch (error) {
          if (!isCoded(error)) throw error;
          expect(error.code).toBe('DATA_INVALID');
          expect(error.message).not.toContain('leaves the assistant');
        }
      }
    }),
    { numRuns: 150 },
  );
  expect(encoded).toBeGreaterThan(200);
});
