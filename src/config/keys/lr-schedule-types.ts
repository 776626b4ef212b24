/**
 * @file Names of learning-rate schedules and of their parts, as transformers spells them.
 */

/** Values of `lr_scheduler_type`. */
export const LR_SCHEDULE_TYPES = [
  'linear',
  'cosine',
  'cosine_with_restarts',
  'polynomial',
  'constant',
  'constant_with_warmup',
  'inverse_sqrt',
  'cosine_with_min_lr',
  'warmup_stable_decay',
] as const;

/** Shapes of warm-up and decay in warmup_stable_decay. */
export const WSD_SHAPES = ['linear', 'cosine', '1-sqrt'] as const;
