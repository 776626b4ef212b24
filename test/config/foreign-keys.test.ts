// Goal: a configuration from elsewhere is told, key by key, what its keys are here.
import { describe, expect, it } from 'vitest';
import { FOREIGN_KEY_NAMES, foreignKey } from '../../src/config/foreign-keys.js';
import { FIXED_KEYS, IDLE_KEYS } from '../../src/config/keys/standing-keys.js';
import { ACCEPTED_KEYS, CONFIG_KEYS } from '../../src/config/schema.js';
import { failure, fileWith, load, recorder, REQUIRED } from './config-folder.js';

describe('a key from elsewhere', () => {
  it.each([
    ['per_gpu_train_batch_size: 4', 'per_device_train_batch_size'],
    ['evaluation_strategy: steps', 'eval_strategy'],
    ['max_seq_length: 512', 'max_length'],
    ['micro-batch-size: 1', 'per_device_train_batch_size'],
    ['num_epochs: 1', 'num_train_epochs'],
    ['base_model: m', 'model_name_or_path'],
    ['sequence_len: 512', 'max_length'],
    ['sample_packing: true', 'packing'],
    ['val_set_size: 0.1', 'eval_split'],
    ['lr_scheduler: cosine', 'lr_scheduler_type'],
    ['optimizer: adamw', 'optim'],
    ['datasets: [{path: d}]', 'data_files'],
    ['zero_optimization: {stage: 3}', 'deepspeed'],
  ])('%j is told its name here', async (text, name) => {
    const error = await failure(() => load(REQUIRED, fileWith(text)));
    expect(error.code).toBe('CONFIG_UNKNOWN_KEY');
    expect(error.facts).toMatchObject({ nearest: name });
    expect(error.message).toContain(`use "${name}"`);
  });

  it.each([
    ['load_in_4bit: true', 'float32 masters'],
    ['lora_r: 8', 'no adapters'],
    ['fsdp: full_shard', 'one device'],
    ['fsdp_config: {a: 1}', 'one device'],
    ['neftune_noise_alpha: 5', 'no noise'],
    ['wandb_project: p', 'metrics.jsonl'],
  ])('%j is told that nothing does it', async (text, fragment) => {
    const error = await failure(() => load(REQUIRED, fileWith(text)));
    expect(error.code).toBe('CONFIG_UNKNOWN_KEY');
    expect(error.message).toContain('not supported');
    expect(error.message).toContain(fragment);
  });

  it('given as null is a key not given', async () => {
    const config = await load(REQUIRED, fileWith('fsdp: null\nwandb_project:\nseed: 7'));
    expect(config.seed).toBe(7);
  });

  it('never has a name of ours, and always leads to one', () => {
    for (const name of FOREIGN_KEY_NAMES) {
      expect(Object.hasOwn(ACCEPTED_KEYS, name), name).toBe(false);
      const foreign = foreignKey(name)!;
      if (foreign.kind === 'renamed') {
        expect(Object.hasOwn(CONFIG_KEYS, foreign.to), foreign.to).toBe(true);
      }
    }
    expect(foreignKey('constructor')).toBeUndefined();
  });
});

describe('a key that decides nothing', () => {
  it.each(Object.entries(FIXED_KEYS))('%s has one value', async (name, key) => {
    for (const text of [`${name}: ${key.type}`, `${name}: "${key.type}"`]) {
      expect(await load(REQUIRED, fileWith(text))).toHaveProperty('modelNameOrPath', 'm');
    }
    const other = key.type === 'true' ? 'false' : 'true';
    const error = await failure(() => load([...REQUIRED, `--${name}=${other}`]));
    expect(error.code).toBe('CONFIG_INVALID');
    expect(error.message).toContain(`${name} cannot be "${other}"`);
    expect(error.message).toContain(`allowed: ${key.type}`);
  });

  it('takes a number of another notation', async () => {
    const config = await load([...REQUIRED, '--label_smoothing_factor', '0.0']);
    expect(config).not.toHaveProperty('labelSmoothingFactor');
    expect((await failure(() => load([...REQUIRED, '--eval_delay=']))).code).toBe('CONFIG_INVALID');
  });

  it('is named in one note when any value will do', async () => {
    const logger = recorder();
    const text = 'dataloader_num_workers: 4\ngradient_checkpointing_kwargs: {use_reentrant: false}';
    await load([...REQUIRED, '--use-liger-kernel', '--local_rank', '-1'], fileWith(text), logger);
    expect(logger.lines).toHaveLength(1);
    for (const name of ['dataloader_num_workers', 'gradient_checkpointing_kwargs', 'local_rank']) {
      expect(logger.lines[0]).toContain(name);
    }
  });

  it('says nothing when none is given', async () => {
    const logger = recorder();
    await load([...REQUIRED, '--do_train'], undefined, logger);
    expect(logger.lines).toEqual([]);
    expect(Object.keys(IDLE_KEYS).filter((name) => Object.hasOwn(CONFIG_KEYS, name))).toEqual([]);
  });
});
