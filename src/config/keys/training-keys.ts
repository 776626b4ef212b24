/**
 * @file Configuration keys of batches, optimizer and learning rate.
 */
import type { ConfigKey } from '../config-key.js';
import { choiceKey, numberKey, optional, wholeKey } from '../config-key.js';
import { LR_SCHEDULE_TYPES, WSD_SHAPES } from './lr-schedule-types.js';
import { atLeast, finite, share } from './ranges.js';

export const TRAINING_KEYS = {
  per_device_train_batch_size: wholeKey('a whole number, at least 1', atLeast(1), 1, {
    meaning: 'Rows per micro-batch.',
    source: 'Hugging Face',
  }),
  per_device_eval_batch_size: optional(
    wholeKey('a whole number, at least 1', atLeast(1), undefined, {
      meaning: 'Rows per micro-batch of an evaluation.',
      source: 'Hugging Face',
      fallbackText: '`per_device_train_batch_size`',
    }),
  ),
  gradient_accumulation_steps: wholeKey('a whole number, at least 1', atLeast(1), 1, {
    meaning: 'Micro-batches per optimizer step.',
    source: 'Hugging Face',
  }),
  num_train_epochs: numberKey('a number above 0', (value) => value > 0 && value < 1e9, 3, {
    meaning: 'Passes over the data; a fraction ends within an epoch.',
    source: 'Hugging Face',
  }),
  max_steps: wholeKey('-1 or a whole number above 0', (value) => value === -1 || value > 0, -1, {
    meaning: 'Optimizer steps; overrides `num_train_epochs` unless -1.',
    source: 'Hugging Face',
  }),
  learning_rate: numberKey(
    'a number, at least 0',
    (value) => Number.isFinite(value) && value >= 0,
    2e-5,
    {
      meaning: 'Peak learning rate of AdamW.',
      source: 'Hugging Face',
    },
  ),
  lr_scheduler_type: choiceKey(LR_SCHEDULE_TYPES, 'linear', {
    meaning: 'Course of the learning rate after warm-up.',
    source: 'Hugging Face',
  }),
  'lr_scheduler_kwargs.min_lr': optional(
    numberKey('a number, at least 0', finite, undefined, {
      meaning: 'Lowest learning rate of cosine_with_min_lr.',
      source: 'Hugging Face',
      fallbackText: 'none',
    }),
  ),
  'lr_scheduler_kwargs.min_lr_rate': optional(
    numberKey('a share from 0 to 1', share, undefined, {
      meaning: 'The same as a share of `learning_rate`; one of the two is required.',
      source: 'Hugging Face',
      fallbackText: 'none',
    }),
  ),
  'lr_scheduler_kwargs.min_lr_ratio': optional(
    numberKey('a share from 0 to 1', share, undefined, {
      meaning: 'Lowest share of `learning_rate` in warmup_stable_decay.',
      source: 'Hugging Face',
      fallbackText: '0',
    }),
  ),
  'lr_scheduler_kwargs.num_cycles': optional(
    numberKey('a number above 0', (value) => value > 0 && value < 1e6, undefined, {
      meaning:
        'Cosine waves: of cosine, cosine_with_min_lr and warmup_stable_decay 0.5 by default, of cosine_with_restarts 1 (hard restarts).',
      source: 'Hugging Face',
      fallbackText: '0.5, or 1',
    }),
  ),
  'lr_scheduler_kwargs.power': optional(
    numberKey('a number above 0', (value) => value > 0 && value < 1e3, undefined, {
      meaning: 'Exponent of polynomial.',
      source: 'Hugging Face',
      fallbackText: '1',
    }),
  ),
  'lr_scheduler_kwargs.lr_end': optional(
    numberKey('a number, at least 0', finite, undefined, {
      meaning: 'Learning rate at the end of polynomial.',
      source: 'Hugging Face',
      fallbackText: '1e-7',
    }),
  ),
  'lr_scheduler_kwargs.timescale': optional(
    numberKey('a number above 0', (value) => value > 0 && value < 1e12, undefined, {
      meaning: 'Time scale of inverse_sqrt, in steps.',
      source: 'Hugging Face',
      fallbackText: 'the warm-up steps, or 10000',
    }),
  ),
  'lr_scheduler_kwargs.num_decay_steps': optional(
    numberKey(
      'a whole number, at least 0',
      (value) => Number.isSafeInteger(value) && value >= 0,
      undefined,
      {
        meaning: 'Steps of decay at the end of warmup_stable_decay; required by it.',
        source: 'Hugging Face',
        fallbackText: 'none',
      },
    ),
  ),
  'lr_scheduler_kwargs.num_stable_steps': optional(
    numberKey(
      'a whole number, at least 0',
      (value) => Number.isSafeInteger(value) && value >= 0,
      undefined,
      {
        meaning: 'Steps between warm-up and decay of warmup_stable_decay.',
        source: 'Hugging Face',
        fallbackText: 'what is left of all steps',
      },
    ),
  ),
  'lr_scheduler_kwargs.warmup_type': optional(
    choiceKey(WSD_SHAPES, undefined, {
      meaning: 'Shape of the warm-up of warmup_stable_decay.',
      source: 'Hugging Face',
      fallbackText: 'linear',
    }),
  ),
  'lr_scheduler_kwargs.decay_type': optional(
    choiceKey(WSD_SHAPES, undefined, {
      meaning: 'Shape of the decay of warmup_stable_decay.',
      source: 'Hugging Face',
      fallbackText: 'cosine',
    }),
  ),
  warmup_steps: numberKey(
    'a whole number, or a share of all steps below 1',
    (value) => value >= 0 && (value < 1 || Number.isSafeInteger(value)),
    0,
    {
      meaning: 'Steps over which the learning rate rises from 0.',
      source: 'Hugging Face',
    },
  ),
  warmup_ratio: numberKey('a share from 0 to 1', share, 0, {
    meaning: 'Warm-up as a share of all steps, where `warmup_steps` is 0.',
    source: 'Hugging Face',
  }),
  optim: choiceKey(
    ['adamw_torch', 'adamw_torch_fused', 'adamw_apex_fused', 'adamw'],
    'adamw_torch',
    {
      meaning: 'AdamW, under any of its names; other optimizers are refused.',
      reason: 'Spillway has AdamW with float32 states only',
      source: 'Hugging Face',
    },
  ),
  adam_beta1: numberKey('a number from 0 to below 1', (value) => value >= 0 && value < 1, 0.9, {
    meaning: "AdamW's decay of the first moment.",
    source: 'Hugging Face',
  }),
  adam_beta2: numberKey('a number from 0 to below 1', (value) => value >= 0 && value < 1, 0.999, {
    meaning: "AdamW's decay of the second moment.",
    source: 'Hugging Face',
  }),
  adam_epsilon: numberKey(
    'a number, at least 0',
    (value) => Number.isFinite(value) && value >= 0,
    1e-8,
    {
      meaning: "AdamW's epsilon.",
      source: 'Hugging Face',
    },
  ),
  weight_decay: numberKey(
    'a number, at least 0',
    (value) => Number.isFinite(value) && value >= 0,
    0,
    {
      meaning: 'Decoupled weight decay; never applied to norms and biases.',
      source: 'Hugging Face',
    },
  ),
  max_grad_norm: numberKey(
    'a number, at least 0',
    (value) => Number.isFinite(value) && value >= 0,
    1,
    {
      meaning: 'Gradients are scaled down to this global norm; 0 turns clipping off.',
      source: 'Hugging Face',
    },
  ),
  seed: wholeKey(
    'a whole number from 0 to 4294967295',
    (value) => value >= 0 && value < 2 ** 32,
    42,
    {
      meaning: 'Seed of everything random: shuffling, and randomness within blocks.',
      source: 'Hugging Face',
    },
  ),
} satisfies Record<string, ConfigKey<unknown>>;
