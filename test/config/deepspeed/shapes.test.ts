// Goal: DeepSpeed configurations of the shapes that people have become the right keys.
import { describe, expect, it } from 'vitest';
import { loadWith } from './ds-folder.js';

/** As in the guides to ZeRO-3 under the Trainer: everything is "auto". */
const AUTO = {
  fp16: { enabled: 'auto', loss_scale: 0, initial_scale_power: 16 },
  bf16: { enabled: 'auto' },
  optimizer: {
    type: 'AdamW',
    params: { lr: 'auto', betas: 'auto', eps: 'auto', weight_decay: 'auto' },
  },
  scheduler: {
    type: 'WarmupLR',
    params: { warmup_min_lr: 'auto', warmup_max_lr: 'auto', warmup_num_steps: 'auto' },
  },
  zero_optimization: {
    stage: 3,
    offload_optimizer: { device: 'cpu', pin_memory: true },
    offload_param: { device: 'cpu', pin_memory: true },
    overlap_comm: true,
    contiguous_gradients: true,
    sub_group_size: 1e9,
    reduce_bucket_size: 'auto',
    stage3_prefetch_bucket_size: 'auto',
    stage3_param_persistence_threshold: 'auto',
    stage3_max_live_parameters: 1e9,
    stage3_max_reuse_distance: 1e9,
    stage3_gather_16bit_weights_on_model_save: true,
  },
  gradient_accumulation_steps: 'auto',
  gradient_clipping: 'auto',
  steps_per_print: 2000,
  train_batch_size: 'auto',
  train_micro_batch_size_per_gpu: 'auto',
  wall_clock_breakdown: false,
};

/** Parameters and optimizer on different disks, tuned asynchronous I/O. */
const NVME = {
  bf16: { enabled: true },
  zero_optimization: {
    stage: 3,
    sub_group_size: 1048576,
    offload_param: {
      device: 'nvme',
      nvme_path: '/disk0',
      pin_memory: true,
      buffer_count: 5,
      buffer_size: 1e8,
      max_in_cpu: 1e9,
    },
    offload_optimizer: {
      device: 'nvme',
      nvme_path: '/disk1',
      buffer_count: 4,
      fast_init: false,
      ratio: 1.0,
    },
  },
  aio: {
    block_size: 262144,
    queue_depth: 32,
    thread_count: 1,
    single_submit: false,
    overlap_events: true,
  },
  train_micro_batch_size_per_gpu: 2,
  gradient_accumulation_steps: 4,
  train_batch_size: 8,
};

/** A configuration for DeepSpeed alone, every number written out. */
const EXPLICIT = {
  train_batch_size: 32,
  gradient_accumulation_steps: 4,
  gradient_clipping: 0.5,
  optimizer: {
    type: 'Adam',
    params: {
      lr: 3e-4,
      betas: [0.8, 0.95],
      eps: 1e-6,
      weight_decay: 0.01,
      adam_w_mode: true,
      torch_adam: true,
    },
  },
  scheduler: {
    type: 'WarmupDecayLR',
    params: {
      warmup_min_lr: 0,
      warmup_max_lr: 3e-4,
      warmup_num_steps: 100,
      warmup_type: 'linear',
      total_num_steps: 5000,
    },
  },
  zero_optimization: { stage: 2, offload_optimizer: { device: 'cpu' } },
};

describe('a configuration', () => {
  it('of "auto" takes every trainer key and lists what it ignores once', async () => {
    const trainer = [
      'learning_rate: 1e-4',
      'adam_beta2: 0.98',
      'gradient_accumulation_steps: 3',
      'lr_scheduler_type: constant_with_warmup',
      'bf16: true',
    ].join('\n');
    const { config, lines } = await loadWith(AUTO, trainer);
    expect(config).toMatchObject({
      learningRate: 1e-4,
      adamBeta1: 0.9,
      adamBeta2: 0.98,
      perDeviceTrainBatchSize: 1,
      gradientAccumulationSteps: 3,
      maxGradNorm: 1,
      dtype: 'bfloat16',
      lrSchedulerType: 'constant_with_warmup',
      offloadParam: { device: 'cpu' },
      offloadOptimizer: { device: 'cpu' },
      // Elements, cut to a multiple of 4096.
      subGroupSize: 244_140 * 4096,
    });
    const warnings = lines.filter((line) => line.startsWith('warn:'));
    expect(warnings).toHaveLength(1);
    expect(warnings[0]).not.toContain('unknown');
    expect(warnings[0]!.split('ignored: ')[1]!.split(', ').sort()).toEqual(
      [
        'fp16.loss_scale',
        'fp16.initial_scale_power',
        'steps_per_print',
        'wall_clock_breakdown',
        'zero_optimization.contiguous_gradients',
        'zero_optimization.offload_optimizer.pin_memory',
        'zero_optimization.offload_param.pin_memory',
        'zero_optimization.overlap_comm',
        'zero_optimization.reduce_bucket_size',
        'zero_optimization.stage3_gather_16bit_weights_on_model_save',
        'zero_optimization.stage3_max_live_parameters',
        'zero_optimization.stage3_max_reuse_distance',
        'zero_optimization.stage3_param_persistence_threshold',
        'zero_optimization.stage3_prefetch_bucket_size',
      ].sort(),
    );
    expect(lines.filter((line) => line.startsWith('info:'))).toEqual([
      expect.stringContaining('sub_group_size 1000000000 is cut to 999997440 elements'),
    ]);
  });

  it('with NVMe spreads both kinds of state over the paths of both', async () => {
    const { config, lines } = await loadWith(NVME);
    expect(config).toMatchObject({
      dtype: 'bfloat16',
      nvmePath: ['/disk0', '/disk1'],
      offloadParam: { device: 'nvme' },
      offloadOptimizer: { device: 'nvme' },
      subGroupSize: 1_048_576,
      perDeviceTrainBatchSize: 2,
      gradientAccumulationSteps: 4,
    });
    expect(config.nvmeMemory).toBe(90 * 2 ** 30);
    expect(lines).toHaveLength(1);
    for (const name of ['block_size', 'queue_depth', 'thread_count', 'single_submit']) {
      expect(lines[0]).toContain(`aio.${name}`);
    }
    expect(lines[0]).toContain('zero_optimization.offload_param.max_in_cpu');
    expect(lines[0]).toContain('zero_optimization.offload_optimizer.fast_init');
  });

  it('written out sets what the trainer does not', async () => {
    const { config, lines } = await loadWith(EXPLICIT, 'max_steps: 5000');
    expect(config).toMatchObject({
      perDeviceTrainBatchSize: 8,
      gradientAccumulationSteps: 4,
      maxGradNorm: 0.5,
      learningRate: 3e-4,
      adamBeta1: 0.8,
      adamBeta2: 0.95,
      adamEpsilon: 1e-6,
      weightDecay: 0.01,
      lrSchedulerType: 'linear',
      warmupSteps: 100,
      maxSteps: 5000,
      dtype: 'float32',
      offloadParam: { device: 'auto' },
      offloadOptimizer: { device: 'cpu' },
    });
    expect(lines).toEqual([expect.stringContaining('ignored: optimizer.params.torch_adam')]);
  });

  it.each([
    [{}, 'auto', 'auto'],
    [{ zero_optimization: { stage: 3 } }, 'auto', 'auto'],
    [{ zero_optimization: { stage: 0 } }, 'none', 'none'],
    [{ zero_optimization: { stage: 3, offload_param: { device: 'none' } } }, 'none', 'auto'],
    [
      { zero_optimization: { stage: 1, offload_optimizer: { device: 'nvme', nvme_path: '/d' } } },
      'auto',
      'nvme',
    ],
    [{ zero_optimization: { stage: 3, offload_param: { device: 'auto' } } }, 'auto', 'auto'],
    [{ zero_optimization: { stage: 3, offload_param: null } }, 'auto', 'auto'],
  ])('%j puts parameters at %s and optimizer states at %s', async (ds, param, optimizer) => {
    const { config, lines } = await loadWith(ds);
    expect(config.offloadParam.device).toBe(param);
    expect(config.offloadOptimizer.device).toBe(optimizer);
    expect(lines).toEqual([]);
  });

  it('ignores a path of a device that has none', async () => {
    const { config, lines } = await loadWith({
      zero_optimization: {
        stage: 3,
        offload_param: { device: 'cpu', nvme_path: '/disk0' },
        offload_optimizer: { device: 'nvme', nvme_path: '/disk1' },
      },
    });
    expect(config.nvmePath).toEqual(['/disk1']);
    expect(lines).toEqual([
      expect.stringContaining('ignored: zero_optimization.offload_param.nvme_path'),
    ]);
  });

  it.each([
    ['train_batch_size alone', { train_batch_size: 6 }, '', 6, 1],
    ['with a micro-batch', { train_batch_size: 6, train_micro_batch_size_per_gpu: 2 }, '', 2, 3],
    [
      "with the trainer's micro-batch",
      { train_batch_size: 6 },
      'per_device_train_batch_size: 3',
      3,
      2,
    ],
    [
      "with the trainer's accumulation",
      { train_batch_size: 6 },
      'gradient_accumulation_steps: 6',
      1,
      6,
    ],
    [
      'with a micro-batch of "auto", which is 1',
      { train_batch_size: 6, train_micro_batch_size_per_gpu: 'auto' },
      '',
      1,
      6,
    ],
  ])('%s gives the batch sizes', async (_, ds, trainer, micro, accumulation) => {
    const { config } = await loadWith(ds, trainer);
    expect(config.perDeviceTrainBatchSize).toBe(micro);
    expect(config.gradientAccumulationSteps).toBe(accumulation);
  });

  it('names unknown keys beside the ignored ones, at any depth', async () => {
    const { lines } = await loadWith({
      fancy: { a: 1 },
      zero_optimization: { stage: 3, offload_parm: { device: 'cpu' }, overlap_comm: true },
      steps_per_print: 1,
      ['__proto__x']: 1,
    });
    expect(lines).toEqual([
      expect.stringMatching(
        /ignored: zero_optimization\.overlap_comm, steps_per_print; unknown: fancy, zero_optimization\.offload_parm, __proto__x$/,
      ),
    ]);
  });

  it('with very many unknown keys still warns in one short line', async () => {
    const keys = Array.from({ length: 5000 }, (_, index) => [`k${index}`, 1]);
    const { lines } = await loadWith(Object.fromEntries(keys));
    expect(lines).toHaveLength(1);
    expect(lines[0]).toMatch(/k99 and 4900 more$/);
  });

  it('may begin with a byte order mark', async () => {
    expect((await loadWith('\uFEFF{"gradient_clipping": 2}')).config.maxGradNorm).toBe(2);
  });
});
