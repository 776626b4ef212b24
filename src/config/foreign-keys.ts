/**
 * @file Keys of TrainingArguments, SFTConfig, Axolotl and DeepSpeed that Spillway does not have,
 * and what to write instead.
 *
 * Someone who brings a configuration along is told the key that does it here, or that nothing does,
 * which the nearest name by spelling would not tell.
 */

/** Keys that are spelled otherwise here. Axolotl's and older names of transformers and TRL. */
const RENAMED: Readonly<Record<string, string>> = {
  per_gpu_train_batch_size: 'per_device_train_batch_size',
  train_micro_batch_size_per_gpu: 'per_device_train_batch_size',
  micro_batch_size: 'per_device_train_batch_size',
  batch_size: 'per_device_train_batch_size',
  per_gpu_eval_batch_size: 'per_device_eval_batch_size',
  eval_batch_size: 'per_device_eval_batch_size',
  num_epochs: 'num_train_epochs',
  epochs: 'num_train_epochs',
  evaluation_strategy: 'eval_strategy',
  do_eval: 'eval_strategy',
  evals_per_epoch: 'eval_strategy',
  saves_per_epoch: 'save_strategy',
  max_seq_length: 'max_length',
  max_seq_len: 'max_length',
  model_max_length: 'max_length',
  sequence_len: 'max_length',
  cutoff_len: 'max_length',
  sample_packing: 'packing',
  eval_sample_packing: 'packing',
  model: 'model_name_or_path',
  base_model: 'model_name_or_path',
  model_path: 'model_name_or_path',
  model_id: 'model_name_or_path',
  torch_dtype: 'dtype',
  precision: 'dtype',
  use_cpu: 'device',
  no_cuda: 'device',
  val_set_size: 'eval_split',
  validation_file: 'eval_files',
  test_datasets: 'eval_files',
  datasets: 'data_files',
  train_file: 'data_files',
  train_files: 'data_files',
  dataset_prepared_path: 'token_cache',
  text_column: 'dataset_text_field',
  chat_template: 'chat_template_path',
  roles_to_train: 'assistant_only_loss',
  train_on_inputs: 'completion_only_loss',
  lr: 'learning_rate',
  lr_scheduler: 'lr_scheduler_type',
  scheduler: 'lr_scheduler_type',
  optimizer: 'optim',
  gradient_clipping: 'max_grad_norm',
  clip_grad_norm: 'max_grad_norm',
  data_seed: 'seed',
  preprocessing_num_workers: 'dataset_num_proc',
  dataset_processes: 'dataset_num_proc',
  zero_optimization: 'deepspeed',
  deepspeed_config: 'deepspeed',
  auto_resume_from_checkpoints: 'resume_from_checkpoint',
};

const FULL_PRECISION = 'Spillway trains all weights with float32 masters and offloads them instead';
const ONE_DEVICE = 'Spillway trains on one device, with memory behind it';
const NO_HUB = 'Spillway neither uploads nor downloads; copy output_dir yourself';
const NO_ADAPTERS = 'Spillway trains all weights, no adapters';
const NO_DOWNLOAD = 'save the rows as JSONL files and give them as data_files';
const METRICS = 'Spillway reports to no service; read metrics.jsonl in output_dir';
const PLAIN_LOSS = 'Spillway trains on the plain cross-entropy';

/** Keys that nothing here stands for, and why. */
const ABSENT: Readonly<Record<string, string>> = {
  load_in_4bit: FULL_PRECISION,
  load_in_8bit: FULL_PRECISION,
  quantization_config: FULL_PRECISION,
  fp8: FULL_PRECISION,
  bf16_full_eval: 'evaluation computes in dtype, as training does',
  fp16_full_eval: 'evaluation computes in dtype, as training does',
  use_peft: NO_ADAPTERS,
  peft_config: NO_ADAPTERS,
  adapter: NO_ADAPTERS,
  lora_model_dir: NO_ADAPTERS,
  lora_r: NO_ADAPTERS,
  lora_alpha: NO_ADAPTERS,
  lora_dropout: NO_ADAPTERS,
  lora_target_modules: NO_ADAPTERS,
  lora_target_linear: NO_ADAPTERS,
  fsdp: ONE_DEVICE,
  fsdp_config: ONE_DEVICE,
  parallelism_config: ONE_DEVICE,
  accelerator_config: ONE_DEVICE,
  tensor_parallel_size: ONE_DEVICE,
  hub_model_id: NO_HUB,
  hub_token: NO_HUB,
  hub_strategy: NO_HUB,
  hub_private_repo: NO_HUB,
  dataset_name: NO_DOWNLOAD,
  dataset_config: NO_DOWNLOAD,
  dataset_train_split: NO_DOWNLOAD,
  wandb_project: METRICS,
  wandb_entity: METRICS,
  wandb_name: METRICS,
  mlflow_tracking_uri: METRICS,
  do_predict: 'use spillway evaluate or spillway generate',
  compute_metrics: 'evaluation gives loss and perplexity',
  early_stopping_patience: 'use load_best_model_at_end',
  neftune_noise_alpha: 'Spillway adds no noise to embeddings',
  optim_args: 'use the adam_* keys',
  optim_target_modules: 'Spillway trains all weights with AdamW',
  label_names: 'labels are the column "labels"',
  loss_watchdog_threshold: 'a loss that is not finite ends the run as NON_FINITE',
  activation_offloading: 'the planner decides where checkpoints of activations lie',
  loss_type: PLAIN_LOSS,
  pad_token: 'padding is never seen by the loss or by attention',
  special_tokens: 'the tokenizer files of the model folder are used as they are',
};

/** What is said about a key from elsewhere. */
export type ForeignKey =
  | { readonly kind: 'renamed'; readonly to: string }
  | { readonly kind: 'absent'; readonly why: string };

/** What `name` (with underscores) is elsewhere; undefined when it is not known. */
export function foreignKey(name: string): ForeignKey | undefined {
  if (Object.hasOwn(RENAMED, name)) return { kind: 'renamed', to: RENAMED[name]! };
  if (Object.hasOwn(ABSENT, name)) return { kind: 'absent', why: ABSENT[name]! };
  return undefined;
}

/** All names, for tests. */
export const FOREIGN_KEY_NAMES: readonly string[] = [
  ...Object.keys(RENAMED),
  ...Object.keys(ABSENT),
];
