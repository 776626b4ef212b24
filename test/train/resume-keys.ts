/**
 * @file The training that tests of resuming interrupt: 8 steps over 10 rows, 3 steps per epoch, with
 * evaluations, logging and warm-up at odd places.
 */
import { join } from 'node:path';
import { TINY_MODEL, cyclicRows, writeJsonl, type Keys } from './train-run.js';

/** Steps of the training. */
export const STEP_COUNT = 8;

/** Keys of the training in `folder`, where its data are written; results go to `output`. */
export function resumeKeys(folder: string): (output: string, ...changes: Keys[]) => Keys {
  const base: Keys = {
    model_name_or_path: TINY_MODEL,
    data_files: writeJsonl(join(folder, 'rows.jsonl'), cyclicRows(10)),
    eval_files: writeJsonl(join(folder, 'eval.jsonl'), cyclicRows(5, 20)),
    token_cache: 'none',
    device_memory: '8MiB',
    host_memory: '16MiB',
    'offload_param.device': 'cpu',
    'offload_optimizer.device': 'cpu',
    gradient_accumulation_steps: 2,
    per_device_train_batch_size: 2,
    max_steps: STEP_COUNT,
    learning_rate: 5e-3,
    warmup_steps: 2,
    lr_scheduler_type: 'cosine',
    weight_decay: 0.01,
    logging_steps: 3,
    eval_strategy: 'steps',
    eval_steps: 2,
    save_steps: 100,
    optimizer_workers: 1,
  };
  return (output, ...changes) => ({
    ...(Object.assign({}, base, ...changes) as Keys),
    output_dir: join(folder, output),
  });
}

/** Other homes, budgets, workers and order, which may change no bit. */
export function elsewhere(folder: string): Keys {
  return {
    nvme_path: join(folder, 'nvme'),
    nvme_memory: '64MiB',
    'offload_param.device': 'nvme',
    'offload_optimizer.device': 'nvme',
    host_memory: '12MiB',
    device_memory: '6MiB',
    optimizer_workers: 2,
    micro_batch_order: 'horizontal',
    sub_group_size: 4096,
  };
}
