/**
 * @file Each configuration key: how it is written, the value that must come out, its default, a
 * value it refuses, and what must stand beside it.
 */
import type { ConfigKeyName } from '../../src/config/schema.js';
import type { TrainConfig } from '../../src/config/train-config.js';
import { fileWith } from './config-folder.js';

/** What the tests know of one key. */
export interface KeyRow {
  readonly text: string;
  readonly get: (config: TrainConfig) => unknown;
  readonly value: unknown;
  /** Expected default; undefined where the machine decides it or there is none. */
  readonly fallback?: string | number | boolean | readonly never[] | undefined;
  readonly bad?: string;
  /** Another allowed value, where neither the default nor `1` is one. */
  readonly other?: string;
  /** Flags without which the key means nothing or is refused. */
  readonly beside?: readonly string[];
}

function row(
  text: string,
  get: KeyRow['get'],
  value: unknown,
  fallback?: KeyRow['fallback'],
  bad?: string,
  more: Pick<KeyRow, 'other' | 'beside'> = {},
): KeyRow {
  return { text, get, value, fallback, ...(bad === undefined ? {} : { bad }), ...more };
}

/** The key names a file that must be there. */
const DS_CONFIG = fileWith('{}');

const WSD = [
  ...['--lr_scheduler_type', 'warmup_stable_decay'],
  ...['--lr_scheduler_kwargs.num_decay_steps', '5'],
];

export const KEY_TABLE: Readonly<Record<ConfigKeyName, KeyRow>> = {
  model_name_or_path: row('models/gpt2', (c) => c.modelNameOrPath, 'models/gpt2'),
  output_dir: row('out', (c) => c.outputDir, 'out', 'trainer_output'),
  dtype: row('bfloat16', (c) => c.dtype, 'bfloat16', 'float32', 'float16'),
  bf16: row('true', (c) => c.bf16, true, false, 'half'),
  fp16: row('false', (c) => c.fp16, false, false, 'half'),
  strict_config: row('true', (c) => c.strictConfig, true, false, 'maybe'),
  device: row('native', (c) => c.device, 'native', 'auto', 'gpu'),
  device_memory: row('64MiB', (c) => c.deviceMemory, 2 ** 26, 2 ** 31, '8 gigs'),
  host_memory: row('10GB', (c) => c.hostMemory, 1e10, 2 ** 32, '-1'),
  nvme_path: row('/a,/b', (c) => c.nvmePath, ['/a', '/b'], []),
  nvme_memory: row('1.5GiB', (c) => c.nvmeMemory, 1.5 * 2 ** 30, 0, 'x', {
    beside: ['--nvme_path', '/a'],
  }),
  'offload_param.device': row('cpu', (c) => c.offloadParam.device, 'cpu', 'auto', 'disk'),
  'offload_optimizer.device': row(
    'nvme',
    (c) => c.offloadOptimizer.device,
    'nvme',
    'auto',
    'disk',
    {
      beside: ['--nvme_path', '/a'],
    },
  ),
  sub_group_size: row('8192', (c) => c.subGroupSize, 8192, 16_777_216, '5000'),
  micro_batch_order: row('horizontal', (c) => c.microBatchOrder, 'horizontal', 'auto', 'both'),
  optimizer_workers: row('5', (c) => c.optimizerWorkers, 5, undefined, '0'),
  'throttle.nvme_read': row('500MB', (c) => c.throttle.nvmeRead, 5e8, undefined, '0'),
  'throttle.nvme_write': row('2e8', (c) => c.throttle.nvmeWrite, 2e8, undefined, '-1'),
  'throttle.upload': row('1GiB', (c) => c.throttle.upload, 2 ** 30, undefined, 'fast'),
  'throttle.download': row('1.5GiB', (c) => c.throttle.download, 1.5 * 2 ** 30, undefined, '0B'),
  gradient_checkpointing: row('true', (c) => c.gradientCheckpointing, true, true, '2'),
  data_files: row('a.jsonl', (c) => c.dataFiles, ['a.jsonl']),
  eval_files: row('e.jsonl,f', (c) => c.evalFiles, ['e.jsonl', 'f']),
  eval_split: row('0.1', (c) => c.evalSplit, 0.1, undefined, '1.5'),
  dataset_text_field: row('content', (c) => c.datasetTextField, 'content', 'text'),
  chat_template_path: row('t.jinja', (c) => c.chatTemplatePath, 't.jinja'),
  completion_only_loss: row('false', (c) => c.completionOnlyLoss, false, true, 'some'),
  assistant_only_loss: row('true', (c) => c.assistantOnlyLoss, true, false, 'some'),
  max_length: row('512', (c) => c.maxLength, 512, 1024, '1'),
  packing: row('true', (c) => c.packing, true, false, 'bfd'),
  dataset_num_proc: row('3', (c) => c.datasetNumProc, 3, undefined, '257'),
  token_cache: row('none', (c) => c.tokenCache, 'none'),
  per_device_train_batch_size: row('4', (c) => c.perDeviceTrainBatchSize, 4, 1, '1.5'),
  per_device_eval_batch_size: row('2', (c) => c.perDeviceEvalBatchSize, 2, undefined, '0'),
  gradient_accumulation_steps: row('8', (c) => c.gradientAccumulationSteps, 8, 1, '0'),
  num_train_epochs: row('0.5', (c) => c.numTrainEpochs, 0.5, 3, '0'),
  max_steps: row('7', (c) => c.maxSteps, 7, -1, '0'),
  learning_rate: row('1e-3', (c) => c.learningRate, 1e-3, 2e-5, 'fast'),
  lr_scheduler_type: row('cosine', (c) => c.lrSchedulerType, 'cosine', 'linear', 'square'),
  'lr_scheduler_kwargs.min_lr': row('1e-6', (c) => c.lrSchedulerKwargs.minLr, 1e-6, undefined, 'x'),
  'lr_scheduler_kwargs.min_lr_rate': row(
    '0.1',
    (c) => c.lrSchedulerKwargs.minLrRate,
    0.1,
    undefined,
    '1.1',
  ),
  'lr_scheduler_kwargs.min_lr_ratio': row(
    '0.2',
    (c) => c.lrSchedulerKwargs.minLrRatio,
    0.2,
    undefined,
    '-1',
    { beside: WSD },
  ),
  'lr_scheduler_kwargs.num_cycles': row(
    '2.5',
    (c) => c.lrSchedulerKwargs.numCycles,
    2.5,
    undefined,
    '0',
  ),
  'lr_scheduler_kwargs.power': row('2', (c) => c.lrSchedulerKwargs.power, 2, undefined, '1e3'),
  'lr_scheduler_kwargs.lr_end': row('0', (c) => c.lrSchedulerKwargs.lrEnd, 0, undefined, '-1'),
  'lr_scheduler_kwargs.timescale': row(
    '100',
    (c) => c.lrSchedulerKwargs.timescale,
    100,
    undefined,
    '0',
  ),
  'lr_scheduler_kwargs.num_decay_steps': row(
    '10',
    (c) => c.lrSchedulerKwargs.numDecaySteps,
    10,
    undefined,
    '1.5',
  ),
  'lr_scheduler_kwargs.num_stable_steps': row(
    '20',
    (c) => c.lrSchedulerKwargs.numStableSteps,
    20,
    undefined,
    '-1',
    { beside: WSD },
  ),
  'lr_scheduler_kwargs.warmup_type': row(
    '1-sqrt',
    (c) => c.lrSchedulerKwargs.warmupType,
    '1-sqrt',
    undefined,
    'sqrt',
    { other: 'cosine', beside: WSD },
  ),
  'lr_scheduler_kwargs.decay_type': row(
    'linear',
    (c) => c.lrSchedulerKwargs.decayType,
    'linear',
    undefined,
    'sqrt',
    { other: 'cosine', beside: WSD },
  ),
  warmup_steps: row('3', (c) => c.warmupSteps, 3, 0, '1.5'),
  warmup_ratio: row('0.03', (c) => c.warmupRatio, 0.03, 0, '2'),
  optim: row('adamw', (c) => c.optim, 'adamw', 'adamw_torch', 'best'),
  adam_beta1: row('0.8', (c) => c.adamBeta1, 0.8, 0.9, '1'),
  adam_beta2: row('0.95', (c) => c.adamBeta2, 0.95, 0.999, '1.1'),
  adam_epsilon: row('1e-6', (c) => c.adamEpsilon, 1e-6, 1e-8, 'Infinity'),
  weight_decay: row('.1', (c) => c.weightDecay, 0.1, 0, '-0.1'),
  max_grad_norm: row('0', (c) => c.maxGradNorm, 0, 1, '-1'),
  seed: row('0', (c) => c.seed, 0, 42, '4294967296'),
  logging_steps: row('1', (c) => c.loggingSteps, 1, 10, '0'),
  logging_first_step: row('true', (c) => c.loggingFirstStep, true, false, '1'),
  eval_strategy: row('epoch', (c) => c.evalStrategy, 'epoch', 'no', 'never', {
    beside: ['--eval_split', '0.1'],
  }),
  eval_steps: row('0.25', (c) => c.evalSteps, 0.25, undefined, '0'),
  eval_on_start: row('true', (c) => c.evalOnStart, true, false, '1', {
    beside: ['--eval_files', 'e.jsonl'],
  }),
  save_strategy: row('no', (c) => c.saveStrategy, 'no', 'steps', 'always'),
  save_steps: row('50', (c) => c.saveSteps, 50, 500, '1.5'),
  save_total_limit: row('2', (c) => c.saveTotalLimit, 2, undefined, '0'),
  save_only_model: row('true', (c) => c.saveOnlyModel, true, false, '1'),
  max_shard_size: row('2GB', (c) => c.maxShardSize, 2e9, 50e9, '2 gigs'),
  load_best_model_at_end: row('true', (c) => c.loadBestModelAtEnd, true, false, '1', {
    beside: ['--eval_strategy', 'steps', '--eval_steps', '500', '--eval_split', '9'],
  }),
  metric_for_best_model: row('eval_loss', (c) => c.metricForBestModel, 'eval_loss', 'loss', 'f1'),
  greater_is_better: row('false', (c) => c.greaterIsBetter, false, false, 'no'),
  resume_from_checkpoint: row('auto', (c) => c.resumeFromCheckpoint, 'auto'),
  report_to: row('none', (c) => c.reportTo, 'none', 'none', 'wandb'),
  disable_tqdm: row('true', (c) => c.disableTqdm, true, false, '1'),
  trace: row('trace.json', (c) => c.trace, 'trace.json'),
  trace_steps: row('5', (c) => c.traceSteps, 5, 3, '0'),
  log_format: row('json', (c) => c.logFormat, 'json', 'text', 'yaml'),
  deepspeed: row(DS_CONFIG, (c) => c.deepspeed, DS_CONFIG, undefined, undefined, {
    other: DS_CONFIG,
  }),
};
