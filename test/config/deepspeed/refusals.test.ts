// Goal: what DeepSpeed's file and the trainer say differently, or what cannot be had, is refused.
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { DS_RULES } from '../../../src/config/deepspeed/ds-rules.js';
import { failure, fileWith, folder, load, REQUIRED } from '../config-folder.js';
import { loadWith } from './ds-folder.js';

/** An object with `value` at the dotted `name`. */
function nested(name: string, value: unknown): unknown {
  return name.split('.').reduceRight<unknown>((inner, field) => ({ [field]: inner }), value);
}

describe('a difference', () => {
  it.each([
    ['optimizer.params.lr', 1e-3, 'learning_rate: 1e-4', 'learning_rate', ['0.001', '0.0001']],
    ['optimizer.params.betas', [0.9, 0.95], 'adam_beta2: 0.99', 'adam_beta2', ['0.95', '0.99']],
    ['optimizer.params.eps', 1e-6, 'adam_epsilon: 1e-8', 'adam_epsilon', ['0.000001', '1e-8']],
    ['optimizer.params.weight_decay', 0.1, 'weight_decay: 0', 'weight_decay', ['0.1', ' 0 ']],
    ['gradient_clipping', 0.5, 'max_grad_norm: 1', 'max_grad_norm', ['0.5', ' 1 ']],
    [
      'train_micro_batch_size_per_gpu',
      4,
      'per_device_train_batch_size: 2',
      'per_device_train_batch_size',
      [' 4 ', ' 2 '],
    ],
    [
      'gradient_accumulation_steps',
      4,
      'gradient_accumulation_steps: 2',
      'gradient_accumulation_steps',
      [' 4 ', ' 2 '],
    ],
    ['bf16.enabled', true, 'dtype: float32', 'dtype', ['true', 'float32']],
    ['bf16.enabled', true, 'bf16: false', 'bf16', ['true', 'false']],
    ['bf16.enabled', false, 'bf16: true', 'bf16', ['false', 'true']],
    ['zero_optimization.sub_group_size', 8192, 'sub_group_size: 4096', 'sub_group_size', ['8192']],
    [
      'zero_optimization.stage',
      0,
      'offload_param.device: cpu',
      'offload_param.device',
      [' 0 ', 'cpu'],
    ],
    [
      'scheduler.type',
      'WarmupLR',
      'lr_scheduler_type: cosine',
      'lr_scheduler_type',
      ['cosine', 'WarmupLR'],
    ],
    ['scheduler.params.warmup_max_lr', 1, 'learning_rate: 2', 'learning_rate', [' 1 ', ' 2 ']],
    ['scheduler.params.warmup_num_steps', 5, 'warmup_steps: 6', 'warmup_steps', [' 5 ', ' 6 ']],
    ['scheduler.params.warmup_num_steps', 5, 'warmup_ratio: 0.1', 'warmup_ratio', [' 5 ', '0.1']],
    ['scheduler.params.total_num_steps', 5, 'max_steps: 6', 'max_steps', [' 5 ', ' 6']],
  ])('of %s %j from %s names keys, values and files', async (name, value, trainer, key, values) => {
    const error = await failure(() => loadWith(nested(name, value), trainer));
    expect(error.code).toBe('CONFIG_INVALID');
    for (const part of [key, name, ...values]) {
      expect(error.message.replaceAll(/[;,]/g, ' ')).toContain(part);
    }
    expect(error.message).toContain('"auto"');
    expect(error.message).toContain(folder);
  });

  it('from a flag names the command line', async () => {
    const ds = { optimizer: { params: { lr: 1 } } };
    const error = await failure(() => loadWith(ds, 'learning_rate: 1', ['--learning_rate', '2']));
    expect(error.message).toContain('learning_rate is 2 on the command line');
  });

  it('within one DeepSpeed file names both of its keys', async () => {
    const error = await failure(() =>
      loadWith({
        optimizer: { params: { lr: 1e-3 } },
        scheduler: { type: 'WarmupLR', params: { warmup_max_lr: 1e-4 } },
      }),
    );
    expect(error.message).toContain('optimizer.params.lr is 0.001');
    expect(error.message).toContain('scheduler.params.warmup_max_lr is 0.0001');
  });

  it('of paths does not count their order', async () => {
    const ds = (paths: string[]) => ({
      zero_optimization: {
        stage: 3,
        offload_param: { device: 'nvme', nvme_path: paths[0] },
        offload_optimizer: { device: 'nvme', nvme_path: paths[1] },
      },
    });
    const { config } = await loadWith(ds(['/a', '/b']), 'nvme_path: [/b, /a]');
    expect(config.nvmePath).toHaveLength(2);
    const error = await failure(() => loadWith(ds(['/a', '/c']), 'nvme_path: [/b, /a]'));
    expect(error.message).toContain('nvme_path is /b,/a');
    expect(error.message).toContain('/a,/c');
  });

  it('is none when both say the same, or the trainer leaves it open', async () => {
    const ds = {
      optimizer: { params: { lr: '1e-4' } },
      zero_optimization: { stage: 3, offload_param: { device: 'cpu' } },
    };
    const { config } = await loadWith(ds, 'learning_rate: 0.0001\noffload_param: {device: auto}');
    expect(config.learningRate).toBe(1e-4);
    expect(config.offloadParam.device).toBe('cpu');
  });
});

describe('batch sizes that do not multiply', () => {
  it.each([
    [
      { train_batch_size: 32, train_micro_batch_size_per_gpu: 4, gradient_accumulation_steps: 4 },
      '4 × gradient_accumulation_steps 4 on one device is 16',
    ],
    [
      { train_batch_size: 7, train_micro_batch_size_per_gpu: 2 },
      'no multiple of per_device_train_batch_size 2',
    ],
    [
      { train_batch_size: 7, gradient_accumulation_steps: 2 },
      'no multiple of gradient_accumulation_steps 2',
    ],
    [
      {
        train_batch_size: 2,
        train_micro_batch_size_per_gpu: 'auto',
        gradient_accumulation_steps: 'auto',
      },
      'is 1',
    ],
  ])('%j are refused with the arithmetic', async (ds, fragment) => {
    const error = await failure(() => loadWith(ds));
    expect(error.code).toBe('CONFIG_INVALID');
    expect(error.message).toContain(fragment);
    expect(error.message).toContain('train_batch_size is ');
  });
});

describe('what cannot be had', () => {
  const only = Object.entries(DS_RULES).flatMap(([name, rule]) =>
    rule.kind === 'only' ? [[name, rule] as const] : [],
  );

  it.each(only)('%s is refused by name, and its allowed values are not', async (name, rule) => {
    const bad = rule.allowed.length === 0 ? { x: 1 } : rule.allowed.includes(false) ? true : 0.5;
    const error = await failure(() => loadWith(nested(name, bad)));
    expect(error.code).toBe('CONFIG_INVALID');
    expect(error.message).toContain(`${name} in "`);
    expect(error.message).toContain(rule.why);
    for (const value of rule.allowed) {
      expect((await loadWith(nested(name, value))).lines).toEqual([]);
    }
  });

  it.each([
    ['optimizer.type', 'Lion', 'AdamW only'],
    ['optimizer.type', 'OneBitAdam', 'AdamW only'],
    ['optimizer.type', 5, 'AdamW only'],
    ['optimizer.params.betas', [0.9], 'two'],
    ['optimizer.params.betas', [0.9, 1.5], 'betas[1]'],
    ['optimizer.params.lr', 'fast', 'optimizer.params.lr'],
    ['scheduler.type', 'WarmupCosineLR', 'WarmupDecayLR'],
    ['scheduler.type', 'OneCycle', 'WarmupDecayLR'],
    ['scheduler.params.warmup_num_steps', 0.5, 'whole number'],
    ['scheduler.params.total_num_steps', 100, 'max_steps'],
    ['zero_optimization.stage', 4, 'stages are'],
    ['zero_optimization.stage', '3', 'stages are'],
    ['zero_optimization.offload_param.device', 'cpu', 'stage to 3'],
    ['zero_optimization.sub_group_size', 100, 'at least 4096'],
    ['zero_optimization.sub_group_size', '1GB', 'elements'],
    ['zero_optimization', true, 'a section'],
    ['bf16', true, 'a section'],
    ['bf16.enabled', 'yes', 'a switch'],
    ['train_batch_size', 0, 'whole number'],
    ['train_micro_batch_size_per_gpu', 1.5, 'train_micro_batch_size_per_gpu'],
  ])('%s %j is refused', async (name, value, fragment) => {
    const error = await failure(() => loadWith(nested(name, value)));
    expect(error.code).toBe('CONFIG_INVALID');
    expect(error.message).toContain(name.split('.').at(-1));
    expect(error.message).toContain(fragment);
    expect(error.message).not.toContain('\n');
  });

  it('includes offloading parameters below stage 3', async () => {
    for (const stage of [0, 1, 2]) {
      const zero = { stage, offload_param: { device: 'cpu' } };
      const error = await failure(() => loadWith({ zero_optimization: zero }));
      expect(error.message).toContain('stage to 3');
    }
  });

  it('includes a warm-up that is not linear, but only where there is one', async () => {
    const ds = (params: object) => ({ scheduler: { type: 'WarmupLR', params } });
    for (const params of [
      { warmup_num_steps: 10 },
      { warmup_num_steps: 10, warmup_type: 'log' },
      { warmup_num_steps: 0, warmup_type: 'square' },
    ]) {
      const error = await failure(() => loadWith(ds(params)));
      expect(error.message).toContain('scheduler.params.warmup_type');
      expect(error.message).toContain('set it to "linear"');
    }
    const auto = { warmup_num_steps: 'auto' };
    expect((await failure(() => loadWith(ds(auto), 'warmup_ratio: 0.1'))).code).toBe(
      'CONFIG_INVALID',
    );
    expect((await loadWith(ds(auto))).config.warmupSteps).toBe(0);
    const linear = { warmup_num_steps: 10, warmup_type: 'linear' };
    expect((await loadWith(ds(linear))).config.warmupSteps).toBe(10);
  });
});

describe('a file', () => {
  it.each([
    ['{"bf16": ', 'not valid JSON'],
    ['gradient_clipping: 1', 'not valid JSON'],
    ['[1]', 'not a JSON object'],
    ['{"bf16": {"enabled": true, "enabled": false}}', '"enabled" twice'],
  ])('that is %s is refused', async (text, fragment) => {
    const error = await failure(() => loadWith(text));
    expect(error.code).toBe('CONFIG_INVALID');
    expect(error.message).toContain(fragment);
    expect(error.message).toContain(folder);
  });

  it('that is missing, a folder or huge is refused', async () => {
    const code = async (path: string) =>
      (await failure(() => load([...REQUIRED, '--deepspeed', path]))).code;
    expect(await code(join(folder, 'none.json'))).toBe('CONFIG_NOT_FOUND');
    expect(await code(folder)).toBe('CONFIG_NOT_FOUND');
    expect(await code(fileWith(' '.repeat(2 ** 20 + 1)))).toBe('CONFIG_INVALID');
  });

  it('may ask for what the trainer then contradicts, and is told so by the rules between keys', async () => {
    const error = await failure(() => loadWith({ fp16: { enabled: 'auto' } }, 'fp16: true'));
    expect(error.facts['keys']).toEqual(['fp16']);
  });
});
