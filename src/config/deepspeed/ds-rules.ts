/**
 * @file What Spillway does with each key of a DeepSpeed configuration, by dotted name.
 *
 * A name ending in `.*` stands for all keys of a section that have no rule of their own. A section
 * with a rule of its own is not looked into. Numbers of elements (`sub_group_size`, `buffer_size`,
 * `max_in_cpu`) stay numbers of elements.
 *
 * Source: DeepSpeed's runtime/config.py, runtime/zero/config.py and runtime/zero/offload_config.py.
 */

/** One key's rule. */
export type DsRule =
  | { readonly kind: 'mapped'; readonly meaning: string }
  /** No counterpart here, and no result depends on it. */
  | { readonly kind: 'ignored' }
  /** A key of the mathematics, of which only some values can be had. */
  | { readonly kind: 'only'; readonly allowed: readonly unknown[]; readonly why: string };

function mapped(meaning: string): DsRule {
  return { kind: 'mapped', meaning };
}

function only(allowed: readonly unknown[], why: string): DsRule {
  return { kind: 'only', allowed, why };
}

/** Values that leave a feature off. "auto" takes the trainer's value, which is off as well. */
const OFF = [false, 'auto'];
const IGNORED: DsRule = { kind: 'ignored' };
const ONE_DEVICE = 'there is one device';

function ignored(prefix: string, names: readonly string[]): Readonly<Record<string, DsRule>> {
  return Object.fromEntries(names.map((name) => [`${prefix}${name}`, IGNORED]));
}

const ZERO_RULES: Readonly<Record<string, DsRule>> = {
  stage: mapped(
    '0: both offload devices are `none`; 1, 2: `offload_optimizer` as given; 3: both as given',
  ),
  'offload_param.device': mapped('`offload_param.device`'),
  'offload_param.nvme_path': mapped('`nvme_path`, where the device is nvme'),
  'offload_optimizer.device': mapped('`offload_optimizer.device`'),
  'offload_optimizer.nvme_path': mapped('`nvme_path`, where the device is nvme'),
  'offload_optimizer.ratio': only([1], 'the optimizer is offloaded as a whole'),
  sub_group_size: mapped('`sub_group_size`, in elements, cut to a multiple of 4096'),
  zero_quantized_weights: only(OFF, 'weights are not quantized'),
  zero_quantized_nontrainable_weights: only(OFF, 'weights are not quantized'),
  zero_quantized_gradients: only(OFF, 'gradients are float32'),
  zenflow: only([], 'every update uses all gradients of its step'),
  cpu_offload: only(OFF, 'DeepSpeed calls it offload_optimizer.device now'),
  cpu_offload_params: only(OFF, 'DeepSpeed calls it offload_param.device now'),
  ...ignored('offload_param.', ['pin_memory', 'buffer_count', 'buffer_size', 'max_in_cpu']),
  ...ignored('offload_optimizer.', ['pin_memory', 'buffer_count', 'fast_init', 'super_offload']),
  ...ignored('offload_optimizer.', ['pipeline', 'pipeline_read', 'pipeline_write']),
  ...ignored('offload_optimizer.', ['cpuadam_cores_perc']),
  ...ignored('', [
    'allgather_bucket_size',
    'allgather_partitions',
    'contiguous_gradients',
    'cpu_offload_use_pin_memory',
    'elastic_checkpoint',
    'grad_hooks',
    'ignore_unused_parameters',
    'legacy_stage1',
    'leaf_module',
    'load_from_fp32_weights',
    'log_trace_cache_warnings',
    'max_live_parameters',
    'max_reuse_distance',
    'memory_efficient_linear',
    'mics_hierarchical_params_gather',
    'mics_shard_size',
    'model_persistence_threshold',
    'module_granularity_threshold',
    'overlap_comm',
    'override_module_apply',
    'param_persistence_threshold',
    'pipeline_loading_checkpoint',
    'prefetch_bucket_size',
    'reduce_bucket_size',
    'reduce_scatter',
    'round_robin_gradients',
    'use_all_reduce_for_fetch_params',
    'use_multi_rank_bucket_allreduce',
    'zero_hpz_partition_size',
    'gather_16bit_weights_on_model_save',
  ]),
  ...ignored('stage3_', [
    'allgather_sequential',
    'gather_16bit_weights_on_model_save',
    'gather_fp16_weights_on_model_save',
    'max_live_parameters',
    'max_reuse_distance',
    'model_persistence_threshold',
    'module_granularity_threshold',
    'param_persistence_threshold',
    'prefetch_bucket_size',
    'use_all_reduce_for_fetch_params',
  ]),
};

/** Every known key. */
export const DS_RULES: Readonly<Record<string, DsRule>> = {
  train_batch_size: mapped(
    'must be micro-batch × accumulation on one device; gives the one of them that is not given',
  ),
  train_micro_batch_size_per_gpu: mapped('`per_device_train_batch_size`'),
  gradient_accumulation_steps: mapped('`gradient_accumulation_steps`'),
  gradient_clipping: mapped('`max_grad_norm`'),
  'optimizer.type': mapped('AdamW, or Adam unless `adam_w_mode` is false'),
  'optimizer.params.lr': mapped('`learning_rate`'),
  'optimizer.params.betas': mapped('`adam_beta1`, `adam_beta2`'),
  'optimizer.params.eps': mapped('`adam_epsilon`'),
  'optimizer.params.weight_decay': mapped('`weight_decay`'),
  'optimizer.params.adam_w_mode': only([true, 'auto'], 'weight decay is decoupled'),
  'optimizer.params.bias_correction': only([true, 'auto'], "AdamW's moments are corrected"),
  'optimizer.params.fp32_optimizer_states': only([true, 'auto'], 'moments are float32'),
  'optimizer.params.amsgrad': only(OFF, 'AdamW is plain'),
  ...ignored('optimizer.', ['params.torch_adam', 'params.fused', 'params.foreach']),
  ...ignored('optimizer.', ['legacy_fusion']),
  'scheduler.type': mapped(
    '`lr_scheduler_type`: WarmupLR is constant_with_warmup, WarmupDecayLR is linear',
  ),
  'scheduler.params.warmup_max_lr': mapped('`learning_rate`'),
  'scheduler.params.warmup_min_lr': only([0, 'auto'], 'warm-up begins at 0'),
  'scheduler.params.warmup_num_steps': mapped('`warmup_steps`'),
  'scheduler.params.warmup_type': mapped(
    'linear; required where there is warm-up, for DeepSpeed then warms up logarithmically',
  ),
  'scheduler.params.total_num_steps': mapped('must be `max_steps`'),
  'bf16.enabled': mapped('`dtype: bfloat16`'),
  'bfloat16.enabled': mapped('`dtype: bfloat16`'),
  'fp16.enabled': only(OFF, 'there is no loss scaling; use bf16'),
  'amp.enabled': only(OFF, 'there is no loss scaling; use bf16'),
  'torch_autocast.enabled': only(OFF, 'all of a block computes in dtype'),
  'data_types.grad_accum_dtype': only(['fp32', 'auto'], 'gradients are float32'),
  compression_training: only([], 'weights are trained as they are'),
  sparse_attention: only([], 'attention is dense'),
  'quantize_training.enabled': only(OFF, 'weights are trained as they are'),
  'data_efficiency.enabled': only(OFF, 'rows are used in shuffled order'),
  'curriculum_learning.enabled': only(OFF, 'rows are used in shuffled order'),
  'progressive_layer_drop.enabled': only(OFF, 'every layer runs'),
  'eigenvalue.enabled': only(OFF, 'no quantization follows eigenvalues'),
  'elasticity.enabled': only(OFF, 'batch sizes are as given'),
  'hybrid_engine.enabled': only(OFF, 'training does not generate'),
  gradient_predivide_factor: only([1, 'auto'], ONE_DEVICE),
  'tensor_parallel.autotp_size': only([0, 1], ONE_DEVICE),
  sequence_parallel_size: only([1], ONE_DEVICE),
  ...Object.fromEntries(
    Object.entries(ZERO_RULES).map(([name, rule]) => [`zero_optimization.${name}`, rule]),
  ),
  ...ignored('aio.', ['block_size', 'queue_depth', 'thread_count', 'intra_op_parallelism']),
  ...ignored('aio.', ['single_submit', 'overlap_events', 'use_gds']),
  ...ignored('', [
    'activation_checkpointing.*',
    'amp.*',
    'autotuning',
    'bf16.*',
    'bfloat16.*',
    'checkpoint.*',
    'comet',
    'comms_logger',
    'communication_data_type',
    'compile',
    'csv_monitor',
    'curriculum_learning.*',
    'data_efficiency.*',
    'disable_allgather',
    'dump_state',
    'eigenvalue.*',
    'elasticity.*',
    'flops_profiler',
    'fp16.*',
    'hybrid_engine.*',
    'memory_breakdown',
    'nebula',
    'pipeline',
    'prescale_gradients',
    'progressive_layer_drop.*',
    'quantize_training.*',
    'seq_parallel_communication_data_type',
    'sparse_gradients',
    'steps_per_print',
    'tensor_parallel.*',
    'tensorboard',
    'timers',
    'torch_autocast.*',
    'use_data_before_expert_parallelism',
    'wall_clock_breakdown',
    'wandb',
    'zero_allow_untested_optimizer',
    'zero_force_ds_cpu_optimizer',
  ]),
};

/** The rule of a dotted name, its own or its section's. */
export function dsRule(name: string): DsRule | undefined {
  if (Object.hasOwn(DS_RULES, name)) return DS_RULES[name];
  const wildcard = `${name.split('.')[0]!}.*`;
  return name.includes('.') && Object.hasOwn(DS_RULES, wildcard) ? DS_RULES[wildcard] : undefined;
}

/** Whether some known key lies within the section `name`. */
export function isDsSection(name: string): boolean {
  return Object.keys(DS_RULES).some((known) => known.startsWith(`${name}.`));
}
