/**
 * @file Configuration keys of training and evaluation data.
 */
import { availableParallelism } from 'node:os';
import type { ConfigKey } from '../config-key.js';
import { booleanKey, listKey, numberKey, optional, textKey, wholeKey } from '../config-key.js';
import { atLeast, countOrShare } from './ranges.js';

export const DATA_KEYS = {
  data_files: listKey('a JSONL file or a folder of them, or several', {
    meaning:
      'Training rows: `text`; `prompt` and `completion`; `messages`; or `input_ids` and, optionally, `labels`. A folder stands for the *.jsonl files in it and below, sorted.',
    source: 'Hugging Face',
    fallbackText: 'required',
  }),
  eval_files: optional(
    listKey('a JSONL file or a folder of them, or several', {
      meaning: 'Evaluation rows, in the same forms.',
      source: 'Spillway',
      fallbackText: 'none',
    }),
  ),
  eval_split: optional(
    numberKey('a share below 1, or a whole number of rows', countOrShare, undefined, {
      meaning:
        'Rows of `data_files` that are set aside for evaluation, drawn by `seed`; not beside `eval_files`.',
      source: 'Spillway',
      fallbackText: 'none',
    }),
  ),
  dataset_text_field: textKey('a column', 'text', {
    meaning: 'Column of the text of rows that have no `input_ids`.',
    source: 'Hugging Face',
  }),
  chat_template_path: optional(
    textKey('a .jinja file or a folder with a tokenizer', undefined, {
      meaning:
        'Chat template of rows with `messages`, instead of the model folder\u2019s; saved with the model.',
      source: 'Hugging Face',
      fallbackText: 'the model folder\u2019s',
    }),
  ),
  completion_only_loss: booleanKey(true, {
    meaning: 'Rows with `prompt` and `completion` train on the completion only.',
    source: 'Hugging Face',
  }),
  assistant_only_loss: booleanKey(false, {
    meaning: 'Rows with `messages` train on the assistant\u2019s turns only.',
    source: 'Hugging Face',
  }),
  max_length: wholeKey('a whole number, at least 2', atLeast(2), 1024, {
    meaning: 'Rows are truncated to this number of tokens.',
    source: 'Hugging Face',
  }),
  packing: booleanKey(false, {
    meaning:
      'Put several rows into one sequence of `max_length` (best fit decreasing). They do not see one another and positions restart.',
    source: 'Hugging Face',
  }),
  dataset_num_proc: wholeKey(
    'a whole number from 1 to 256',
    (value) => value >= 1 && value <= 256,
    Math.min(4, availableParallelism()),
    {
      meaning: 'Threads that tokenise.',
      source: 'Hugging Face',
      fallbackText: 'the number of cores, at most 4',
    },
  ),
  token_cache: optional(
    textKey('a folder, or none', undefined, {
      meaning:
        'Where token ids are kept between runs, keyed by data and tokenizer; none keeps nothing. The default folder keeps only data of 1 MiB or more.',
      source: 'Spillway',
      fallbackText: '`$XDG_CACHE_HOME/spillway/tokens`, else `~/.cache/spillway/tokens`',
    }),
  ),
} satisfies Record<string, ConfigKey<unknown>>;
