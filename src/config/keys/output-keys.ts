/**
 * @file Configuration keys of logging, evaluation and checkpoints.
 */
import type { ConfigKey } from '../config-key.js';
import {
  booleanKey,
  bytesKey,
  choiceKey,
  numberKey,
  optional,
  textKey,
  textOrTrueKey,
  wholeKey,
} from '../config-key.js';
import { atLeast, countOrShare } from './ranges.js';

export const OUTPUT_KEYS = {
  logging_steps: wholeKey('a whole number, at least 1', atLeast(1), 10, {
    meaning: 'Steps between lines of metrics.jsonl.',
    source: 'Hugging Face',
  }),
  logging_first_step: booleanKey(false, {
    meaning: 'Write a line for the first step too.',
    source: 'Hugging Face',
  }),
  eval_strategy: choiceKey(['no', 'steps', 'epoch'], 'no', {
    meaning: 'When the evaluation rows are evaluated: every `eval_steps`, or after each epoch.',
    source: 'Hugging Face',
  }),
  eval_steps: optional(
    numberKey(
      'a whole number, at least 1, or a share of all steps below 1',
      countOrShare,
      undefined,
      {
        meaning: 'Steps between evaluations.',
        source: 'Hugging Face',
        fallbackText: '`logging_steps`',
      },
    ),
  ),
  eval_on_start: booleanKey(false, {
    meaning: 'Evaluate once before the first step.',
    source: 'Hugging Face',
  }),
  save_strategy: choiceKey(['no', 'steps', 'epoch', 'best'], 'steps', {
    meaning:
      'When `checkpoint-<step>` folders are written: never, every `save_steps`, after each epoch, or when an evaluation was the best so far. The final model is always saved.',
    source: 'Hugging Face',
  }),
  save_steps: numberKey(
    'a whole number, at least 1, or a share of all steps below 1',
    countOrShare,
    500,
    {
      meaning: 'Steps between checkpoints; the last step is saved as well.',
      source: 'Hugging Face',
    },
  ),
  save_total_limit: optional(
    wholeKey('a whole number, at least 1', atLeast(1), undefined, {
      meaning:
        'Checkpoints that are kept; the oldest go first, never the best one that is to be loaded.',
      source: 'Hugging Face',
      fallbackText: 'all',
    }),
  ),
  save_only_model: booleanKey(false, {
    meaning: 'Leave the optimizer out of checkpoints; they cannot be resumed from.',
    source: 'Hugging Face',
  }),
  max_shard_size: bytesKey(
    {
      meaning: 'Weights beyond this size are saved in several files with an index.',
      source: 'Hugging Face',
      fallbackText: '50GB',
    },
    '50GB',
  ),
  load_best_model_at_end: booleanKey(false, {
    meaning: 'The final model is the checkpoint with the best evaluation.',
    source: 'Hugging Face',
  }),
  metric_for_best_model: choiceKey(['loss', 'eval_loss'], 'loss', {
    meaning: 'What makes a checkpoint the best: the lowest loss of an evaluation.',
    source: 'Hugging Face',
  }),
  greater_is_better: booleanKey(false, {
    meaning: 'Refused when true: a loss is better when it is lower.',
    source: 'Hugging Face',
  }),
  resume_from_checkpoint: textOrTrueKey('a checkpoint folder, true, or auto', {
    meaning:
      'Where to go on: that folder; true: the newest of `output_dir`, an error when there is none; auto: the newest, or a fresh start.',
    source: 'Hugging Face',
    fallbackText: 'a fresh start',
  }),
  report_to: choiceKey(['none'], 'none', {
    meaning: 'Spillway reports to no service; metrics.jsonl has the numbers.',
    reason: 'Spillway reports to no service (metrics.jsonl has the numbers)',
    source: 'Hugging Face',
  }),
  disable_tqdm: booleanKey(false, {
    meaning: 'Plain lines instead of a progress bar, also on a terminal.',
    source: 'Hugging Face',
  }),
  trace: optional(
    textKey('a file', undefined, {
      meaning:
        'Chrome Trace Event file of the first steps, for Perfetto and `spillway report`: operations, transfers and bytes held. A file that is there is replaced.',
      source: 'Spillway',
      fallbackText: 'none',
    }),
  ),
  trace_steps: wholeKey('a whole number, at least 1', atLeast(1), 3, {
    meaning: 'Steps that `trace` records, counted from the first of the run.',
    source: 'Spillway',
  }),
  log_format: choiceKey(['text', 'json'], 'text', {
    meaning: 'Form of notes and warnings on standard error: text, or one JSON object per line.',
    source: 'Spillway',
  }),
} satisfies Record<string, ConfigKey<unknown>>;
