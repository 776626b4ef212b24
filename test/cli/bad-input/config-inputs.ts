/**
 * @file Configurations that must be refused.
 */
import type { BadInput, Box, FlagChanges } from './bad-input.js';

type Row = readonly [
  name: string,
  code: BadInput['code'],
  says: RegExp,
  changes: FlagChanges | ((box: Box) => FlagChanges),
];

/** A DeepSpeed file. */
function deepspeed(config: object, changes: FlagChanges = {}): (box: Box) => FlagChanges {
  return (box) => ({ deepspeed: box.file(JSON.stringify(config), 'ds.json'), ...changes });
}

const KEYS: readonly Row[] = [
  ['a misspelt key', 'CONFIG_UNKNOWN_KEY', /did you mean "max_steps"/, { max_stpes: 3 }],
  ['a byte size that is none', 'BYTE_SIZE_INVALID', /"8GiBs"/, { host_memory: '8GiBs' }],
  ['a fraction of a byte', 'BYTE_SIZE_INVALID', /device_memory/, { device_memory: '1.5' }],
  ['a number that is a text', 'CONFIG_INVALID', /max_steps cannot be "ten"/, { max_steps: 'ten' }],
  ['a step count of zero', 'CONFIG_INVALID', /max_steps/, { max_steps: 0 }],
  ['a negative learning rate', 'CONFIG_INVALID', /learning_rate/, { learning_rate: -1 }],
  ['an endless learning rate', 'CONFIG_INVALID', /learning_rate/, { learning_rate: 'Infinity' }],
  ['a batch of half a row', 'CONFIG_INVALID', /batch_size/, { per_device_train_batch_size: 0.5 }],
  ['a beta of one', 'CONFIG_INVALID', /adam_beta1/, { adam_beta1: 1 }],
  ['a schedule that is none', 'CONFIG_INVALID', /cosine/, { lr_scheduler_type: 'cosinus' }],
  [
    'a floor without its value',
    'CONFIG_INVALID',
    /min_lr/,
    { lr_scheduler_type: 'cosine_with_min_lr' },
  ],
  [
    'a decay without its length',
    'CONFIG_INVALID',
    /num_decay_steps/,
    { lr_scheduler_type: 'warmup_stable_decay' },
  ],
  ['another optimizer', 'CONFIG_INVALID', /optim/, { optim: 'sgd' }],
  ['half precision', 'CONFIG_INVALID', /fp16/, { fp16: 'true' }],
  ['two precisions', 'CONFIG_INVALID', /bf16/, { bf16: 'true', dtype: 'float32' }],
  ['evaluation of no rows', 'CONFIG_INVALID', /eval_files/, { eval_strategy: 'steps' }],
  [
    'two sources of evaluation rows',
    'CONFIG_INVALID',
    /eval_split/,
    { eval_files: 'a', eval_split: 0.1 },
  ],
  [
    'a best model without evaluations',
    'CONFIG_INVALID',
    /eval_strategy/,
    { load_best_model_at_end: 'true' },
  ],
  ['a service to report to', 'CONFIG_INVALID', /report_to/, { report_to: 'wandb' }],
  ['an upload', 'CONFIG_INVALID', /push_to_hub/, { push_to_hub: 'true' }],
  ['a shard of no size', 'BYTE_SIZE_INVALID', /max_shard_size/, { max_shard_size: 'big' }],
  ['a device that is none', 'CONFIG_INVALID', /native/, { device: 'cuda' }],
  ['no model', 'CONFIG_INVALID', /model_name_or_path/, { model_name_or_path: undefined }],
  ['no data', 'CONFIG_INVALID', /data_files/, { data_files: undefined }],
  ['a budget for nothing', 'BUDGET_TOO_SMALL', /smallest that works is \d+/, { device_memory: 1 }],
  ['host memory for nothing', 'BUDGET_TOO_SMALL', /smallest that works is \d+/, { host_memory: 1 }],
  [
    'states on files without a folder',
    'CONFIG_INVALID',
    /nvme_path/,
    { 'offload_param.device': 'nvme' },
  ],
  [
    'a sequence longer than memory',
    'BUDGET_TOO_SMALL',
    /device_memory/,
    { per_device_train_batch_size: 4096 },
  ],
  [
    'a resume from nothing',
    'CHECKPOINT_NOT_FOUND',
    /checkpoint/,
    (box) => ({
      resume_from_checkpoint: 'true',
      output_dir: box.emptyFolder(),
    }),
  ],
  [
    'a resume from a folder that is none',
    'CHECKPOINT_NOT_FOUND',
    /nothing/,
    (box) => ({
      resume_from_checkpoint: box.path('nothing'),
    }),
  ],
  [
    'a resume from a model',
    'CHECKPOINT_NOT_FOUND',
    /spillway\.json/,
    (box) => ({
      resume_from_checkpoint: box.earlier,
    }),
  ],
  [
    'a resume with another seed',
    'CHECKPOINT_MISMATCH',
    /seed/,
    {
      resume_from_checkpoint: 'true',
      seed: 7,
      max_steps: 4,
    },
  ],
  [
    'a resume with other data',
    'CHECKPOINT_MISMATCH',
    /data/,
    (box) => ({
      resume_from_checkpoint: 'true',
      max_steps: 4,
      data_files: box.rows({ input_ids: [1, 2, 3] }),
    }),
  ],
];

const DEEPSPEED: readonly Row[] = [
  ['a missing file', 'CONFIG_NOT_FOUND', /nothing/, { deepspeed: '/nothing.json' }],
  [
    'a file that is no JSON',
    'CONFIG_INVALID',
    /ds\.json/,
    (box) => ({
      deepspeed: box.file('{', 'ds.json'),
    }),
  ],
  ['half precision', 'CONFIG_INVALID', /fp16/, deepspeed({ fp16: { enabled: true } })],
  [
    'another optimizer',
    'CONFIG_INVALID',
    /optimizer\.type/,
    deepspeed({ optimizer: { type: 'SGD' } }),
  ],
  [
    'a value that contradicts the trainer',
    'CONFIG_INVALID',
    /gradient_clipping/,
    deepspeed({ gradient_clipping: 2 }, { max_grad_norm: 1 }),
  ],
  [
    'batches that do not multiply',
    'CONFIG_INVALID',
    /train_batch_size/,
    deepspeed({ train_batch_size: 7, train_micro_batch_size_per_gpu: 2 }, {}),
  ],
];

const COMMAND_LINES: readonly BadInput[] = [
  {
    name: 'no command',
    code: 'USAGE_INVALID',
    says: /no command/,
    args: () => [],
  },
  {
    name: 'a command that is none',
    code: 'USAGE_INVALID',
    says: /Did you mean train/,
    args: () => ['trian'],
  },
  {
    name: 'two configuration files',
    code: 'USAGE_INVALID',
    says: /not 2/,
    args: (box) => box.train({}, 'a.yaml', 'b.yaml'),
  },
  {
    name: 'a configuration file that is missing',
    code: 'CONFIG_NOT_FOUND',
    says: /nothing\.yaml/,
    args: (box) => box.train({}, box.path('nothing.yaml')),
  },
  {
    name: 'a configuration file that is a folder',
    code: 'CONFIG_NOT_FOUND',
    says: /made-/,
    args: (box) => box.train({}, box.emptyFolder()),
  },
  {
    name: 'a configuration file that is no YAML',
    code: 'CONFIG_INVALID',
    says: /config\.yaml/,
    args: (box) => box.train({}, box.file('max_steps: [1\nseed: {', 'config.yaml')),
  },
  {
    name: 'a configuration file that is a list',
    code: 'CONFIG_INVALID',
    says: /config\.yaml/,
    args: (box) => box.train({}, box.file('- max_steps', 'config.yaml')),
  },
  {
    name: 'an unknown key in a configuration file',
    code: 'CONFIG_UNKNOWN_KEY',
    says: /learning_rate/,
    args: (box) => box.train({}, box.file('learning_rat: 1', 'config.yaml')),
  },
  {
    name: 'a key twice in a configuration file',
    code: 'CONFIG_INVALID',
    says: /config\.yaml/,
    args: (box) => box.train({}, box.file('max_steps: 1\nmax-steps: 2', 'config.yaml')),
  },
  {
    name: 'a flag twice',
    code: 'CONFIG_INVALID',
    says: /max_steps is given twice/,
    args: (box) => box.train({}, '--max-steps', '3'),
  },
  {
    name: 'a flag without value',
    code: 'CONFIG_INVALID',
    says: /--seed needs a value/,
    args: (box) => box.train({}, '--seed'),
  },
];

function inputsOf(subject: string, rows: readonly Row[]): BadInput[] {
  return rows.map(([name, code, says, changes]) => ({
    name: `${subject}: ${name}`,
    code,
    says,
    args: (box) => box.train(typeof changes === 'function' ? changes(box) : changes),
  }));
}

export const CONFIG_INPUTS: readonly BadInput[] = [
  ...inputsOf('key', KEYS),
  ...inputsOf('deepspeed', DEEPSPEED),
  ...COMMAND_LINES.map((input) => ({ ...input, name: `command line: ${input.name}` })),
];
