// Goal: keys that contradict one another are refused by name, and nothing else is.
import { describe, expect, it } from 'vitest';
import { failure, fileWith, load, REQUIRED } from './config-folder.js';

const ROWS = 'eval_files: e.jsonl\n';
const BEST = `${ROWS}load_best_model_at_end: true\n`;

describe('a contradiction', () => {
  it.each([
    ['fp16: true', ['fp16'], 'use bf16'],
    ['bf16: true\ndtype: float32', ['bf16', 'dtype'], 'contradict'],
    ['gradient_checkpointing: false', ['gradient_checkpointing'], 'leave it out'],
    ['greater_is_better: true', ['greater_is_better'], 'a loss'],
    [`${ROWS}eval_split: 0.1`, ['eval_files', 'eval_split'], 'keep one'],
    ['eval_strategy: steps', ['eval_strategy', 'eval_files', 'eval_split'], 'no rows'],
    ['eval_strategy: epoch', ['eval_strategy'], 'no rows'],
    ['offload_param.device: nvme', ['offload_param.device', 'nvme_path'], 'give nvme_path'],
    ['offload_optimizer: {device: nvme}', ['offload_optimizer.device'], 'give nvme_path'],
    ['eval_on_start: true', ['eval_on_start', 'eval_files'], 'no rows'],
    [BEST, ['load_best_model_at_end', 'eval_strategy'], 'needs evaluations'],
    [`${ROWS}save_strategy: best`, ['save_strategy', 'eval_strategy'], 'needs evaluations'],
    ['save_strategy: best\neval_strategy: steps', ['eval_strategy'], 'no rows'],
    [`${BEST}eval_strategy: epoch`, ['save_strategy', 'eval_strategy'], 'make them equal'],
    [
      `${BEST}eval_strategy: steps\neval_steps: 200\nsave_steps: 500`,
      ['save_steps', 'eval_steps'],
      '500 is none of 200',
    ],
    [
      `${BEST}eval_strategy: steps\nlogging_steps: 7`,
      ['save_steps', 'logging_steps'],
      '500 is none of 7',
    ],
    [
      `${BEST}eval_strategy: steps\neval_steps: 0.1\nsave_steps: 500`,
      ['save_steps', 'eval_steps'],
      'none of',
    ],
    [
      `${BEST}eval_strategy: steps\neval_steps: 0.2\nsave_steps: 0.3`,
      ['save_steps', 'eval_steps'],
      'none of',
    ],
  ])('%j is refused, naming %j', async (text, keys, fragment) => {
    const error = await failure(() => load(REQUIRED, fileWith(text)));
    expect(error.code).toBe('CONFIG_INVALID');
    expect(error.facts['keys']).toEqual(expect.arrayContaining(keys));
    for (const key of keys) expect(error.message).toContain(key);
    expect(error.message).toContain(fragment);
  });

  it('between file and flags is one too', async () => {
    const error = await failure(() => load([...REQUIRED, '--bf16'], fileWith('dtype: float32')));
    expect(error.facts['keys']).toEqual(['bf16', 'dtype']);
  });
});

describe('an agreement', () => {
  it.each([
    `${BEST}eval_strategy: epoch\nsave_strategy: epoch`,
    `${BEST}eval_strategy: epoch\nsave_strategy: best`,
    `${BEST}eval_strategy: steps\neval_steps: 100`,
    `${BEST}eval_strategy: steps`,
    // 0.3 / 0.1 is no whole number in binary fractions.
    `${BEST}eval_strategy: steps\neval_steps: 0.1\nsave_steps: 0.3`,
    'eval_split: 10\neval_on_start: true',
    `${ROWS}save_strategy: best\neval_strategy: steps`,
    // Rows that only \`spillway evaluate\` reads.
    ROWS,
    'gradient_checkpointing: true\ngreater_is_better: false\nfp16: false',
  ])('%j loads', async (text) => {
    expect(await load(REQUIRED, fileWith(text))).toHaveProperty('modelNameOrPath', 'm');
  });

  it.each([
    ['bf16: true', 'bfloat16'],
    ['bf16: true\ndtype: bfloat16', 'bfloat16'],
    ['bf16: false\ndtype: bfloat16', 'bfloat16'],
    ['bf16: false', 'float32'],
  ])('%j computes in %s', async (text, dtype) => {
    expect((await load(REQUIRED, fileWith(text))).dtype).toBe(dtype);
  });
});

describe('optim', () => {
  it.each(['adamw_torch', 'adamw_torch_fused', 'adamw_apex_fused', 'adamw'])(
    '%s is AdamW',
    async (name) => {
      expect((await load([...REQUIRED, '--optim', name])).optim).toBe(name);
    },
  );

  it.each(['adafactor', 'sgd', 'adamw_bnb_8bit', 'paged_adamw_32bit', 'lion_32bit', 'adamw_hf'])(
    '%s is refused by name, beside those that are not',
    async (name) => {
      const error = await failure(() => load([...REQUIRED, '--optim', name]));
      expect(error.code).toBe('CONFIG_INVALID');
      expect(error.message).toContain(`"${name}"`);
      expect(error.message).toContain('AdamW');
      expect(error.message).toContain('adamw_torch_fused');
    },
  );
});

it.each(['reduce_lr_on_plateau', 'cosine_warmup_with_min_lr', 'greedy'])(
  'lr_scheduler_type %s is refused beside the list of those that are not',
  async (name) => {
    const error = await failure(() => load([...REQUIRED, '--lr_scheduler_type', name]));
    expect(error.code).toBe('CONFIG_INVALID');
    expect(error.message).toContain(`"${name}"`);
    expect(error.message).toContain('cosine_with_min_lr | warmup_stable_decay');
  },
);
