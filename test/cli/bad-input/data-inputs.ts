/**
 * @file Rows, tokenizers and templates that must be refused.
 */
import { writeFileSync } from 'node:fs';
import { ROWS as GOOD_ROWS, type BadInput, type Box, type FlagChanges } from './bad-input.js';

type Row = readonly [
  name: string,
  code: BadInput['code'],
  says: RegExp,
  changes: (box: Box) => FlagChanges,
];

/** Good rows, then the bad one: its place must be told. */
function ids(bad: object | string): (box: Box) => FlagChanges {
  return (box) => ({ data_files: box.rows(...GOOD_ROWS, bad) });
}

/** The same for rows that need a tokenizer, and perhaps a chat template. */
function text(bad: object, template?: string): (box: Box) => FlagChanges {
  return (box) => ({
    data_files: box.rows({ text: 'good' }, bad),
    model_name_or_path: box.textModel(
      template === undefined ? {} : { 'chat_template.jinja': template },
    ),
  });
}

const LINE_7 = /rows\.jsonl:7/;
const LINE_2 = /rows\.jsonl:2/;
const TEMPLATE = '{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}';
const user = { role: 'user', content: 'a' };

const ROWS: readonly Row[] = [
  [
    'a file that is missing',
    'DATA_NOT_FOUND',
    /nothing\.jsonl/,
    (box) => ({ data_files: box.path('nothing.jsonl') }),
  ],
  ['an empty folder', 'DATA_NOT_FOUND', /jsonl/, (box) => ({ data_files: box.emptyFolder() })],
  ['an empty file', 'DATA_EMPTY', /rows\.jsonl/, (box) => ({ data_files: box.rows() })],
  [
    'blank lines only',
    'DATA_EMPTY',
    /rows\.jsonl/,
    (box) => ({ data_files: box.rows('', ' ', '') }),
  ],
  [
    'rows of one token',
    'DATA_EMPTY',
    /rows\.jsonl/,
    (box) => ({ data_files: box.rows({ input_ids: [5] }) }),
  ],
  [
    'rows without a label that counts',
    'DATA_EMPTY',
    /label/,
    (box) => ({ data_files: box.rows({ input_ids: [5, 6], labels: [-100, -100] }) }),
  ],
  ['a line that is no JSON', 'DATA_INVALID', LINE_7, ids('{"input_ids": [1, 2}')],
  ['a line that ends early', 'DATA_INVALID', LINE_7, ids('{"input_ids": [1, 2')],
  ['a line that is a list', 'DATA_INVALID', LINE_7, ids('[1, 2, 3]')],
  ['a row of other columns', 'DATA_INVALID', LINE_7, ids({ inputs: [1, 2] })],
  ['ids that are a text', 'DATA_INVALID', LINE_7, ids({ input_ids: '1 2 3' })],
  ['an id that is a fraction', 'DATA_INVALID', LINE_7, ids({ input_ids: [1, 2.5] })],
  ['an id beyond the vocabulary', 'TOKEN_OUT_OF_RANGE', /131/, ids({ input_ids: [1, 131] })],
  ['a negative id', 'TOKEN_OUT_OF_RANGE', /-1/, ids({ input_ids: [1, -1] })],
  ['more labels than ids', 'DATA_INVALID', LINE_7, ids({ input_ids: [1, 2], labels: [1, 2, 3] })],
  [
    'a label beyond the vocabulary',
    'TOKEN_OUT_OF_RANGE',
    /999/,
    ids({ input_ids: [1, 2], labels: [1, 999] }),
  ],
  [
    'a mask of other length',
    'DATA_INVALID',
    LINE_7,
    ids({ input_ids: [1, 2], completion_mask: [1] }),
  ],
  ['a text that is a number', 'DATA_INVALID', LINE_2, text({ text: 5 })],
  ['a prompt without completion', 'DATA_INVALID', LINE_2, text({ prompt: 'a' })],
  ['a completion that is a number', 'DATA_INVALID', LINE_2, text({ prompt: 'a', completion: 5 })],
  [
    'a prompt of text with a completion of messages',
    'DATA_INVALID',
    LINE_2,
    text({ prompt: 'a', completion: [user] }, TEMPLATE),
  ],
  ['messages that are a text', 'DATA_INVALID', LINE_2, text({ messages: 'hello' }, TEMPLATE)],
  ['no message', 'DATA_INVALID', LINE_2, text({ messages: [] }, TEMPLATE)],
  [
    'a message without role',
    'DATA_INVALID',
    LINE_2,
    text({ messages: [{ content: 'a' }] }, TEMPLATE),
  ],
  ['messages without a template', 'DATA_INVALID', /chat template/, text({ messages: [user] })],
  [
    'messages that the template refuses',
    'DATA_INVALID',
    /roles must alternate/,
    text({ messages: [user] }, "{{ raise_exception('roles must alternate') }}"),
  ],
  [
    'a template that is none',
    'TOKENIZER_INVALID',
    /chat template that cannot be used/,
    text({ messages: [user] }, '{% for m in messages %}{{ m.content }}'),
  ],
  [
    'text without a tokenizer',
    'TOKENIZER_INVALID',
    /tokenizer\.json/,
    (box) => ({ data_files: box.rows({ text: 'a' }) }),
  ],
  [
    'a tokenizer that is no JSON',
    'TOKENIZER_INVALID',
    /tokenizer\.json/,
    (box) => ({
      data_files: box.rows({ text: 'a' }),
      model_name_or_path: box.textModel({ 'tokenizer.json': '{"model":' }),
    }),
  ],
  [
    'a tokenizer of an unknown kind',
    'TOKENIZER_INVALID',
    /tokenizer\.json/,
    (box) => ({
      data_files: box.rows({ text: 'a' }),
      model_name_or_path: box.textModel({ 'tokenizer.json': '{"model":{"type":"Magic"}}' }),
    }),
  ],
  [
    'a column that rows lack',
    'DATA_INVALID',
    /body/,
    (box) => ({
      data_files: box.rows({ text: 'a' }),
      model_name_or_path: box.textModel(),
      dataset_text_field: 'body',
    }),
  ],
  [
    'evaluation rows that are missing',
    'DATA_NOT_FOUND',
    /eval_files/,
    (box) => ({ eval_files: box.path('nothing.jsonl'), eval_strategy: 'epoch' }),
  ],
  [
    'a bad evaluation row',
    'TOKEN_OUT_OF_RANGE',
    /131/,
    (box) => ({ eval_files: box.rows({ input_ids: [1, 131] }), eval_strategy: 'epoch' }),
  ],
  [
    'a split that leaves no row to train on',
    'CONFIG_INVALID',
    /eval_split takes/,
    () => ({ eval_split: 0.99, eval_strategy: 'epoch' }),
  ],
  [
    'an id beyond the vocabulary in a packed run',
    'TOKEN_OUT_OF_RANGE',
    /500/,
    (box) => ({ data_files: box.rows(...GOOD_ROWS, { input_ids: [1, 500] }), packing: 'true' }),
  ],
  [
    'binary data',
    'DATA_INVALID',
    /blob\.jsonl/,
    (box) => {
      const path = box.file('', 'blob.jsonl');
      writeFileSync(
        path,
        Uint8Array.from({ length: 999 }, (_, i) => (i * 37) % 256),
      );
      return { data_files: path };
    },
  ],
];

export const DATA_INPUTS: readonly BadInput[] = ROWS.map(([name, code, says, changes]) => ({
  name: `data: ${name}`,
  code,
  says,
  args: (box) => box.train({ output_dir: box.earlier, ...changes(box) }),
}));
