// Goal: the right checkpoint is resumed from, or refused by name with nothing harmed.
import { cpSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import { native } from '../../tiers/native/binding.js';
import { resumeKeys } from './resume-keys.js';
import {
  TINY_MODEL,
  metricsOf,
  readJson,
  timeless,
  train,
  weightsIn,
  workFolder,
  type Keys,
  type Told,
} from './train-run.js';

const folder = workFolder();
const path = (name: string): string => join(folder, name);
const keysOf = resumeKeys(folder);

describe('a checkpoint', () => {
  const output = path('source');
  beforeAll(async () => {
    await train(keysOf('whole', { save_strategy: 'no' }));
    await train(keysOf('source', { save_steps: 3 }), { stopAfterStep: 6 });
  });

  const resumed = (changes: Keys, disturbance = {}): Promise<Told> => {
    rmSync(path('resumed'), { recursive: true, force: true });
    return train(
      keysOf('resumed', { resume_from_checkpoint: join(output, 'checkpoint-3') }, changes),
      disturbance,
    );
  };

  it('in another folder begins metrics with its history and leaves its own folder alone', async () => {
    const before = readdirSync(output).sort();
    const told = await resumed({ save_strategy: 'no' });
    expect(told.steps.map(({ step }) => step)).toEqual([4, 5, 6, 7, 8]);
    expect(timeless(metricsOf(path('resumed')))).toEqual(timeless(metricsOf(path('whole'))));
    expect(weightsIn(path('resumed')).equals(weightsIn(path('whole')))).toBe(true);
    expect(readdirSync(output).sort()).toEqual(before);
  });

  it.each([
    ['per_device_train_batch_size', { per_device_train_batch_size: 1 }, /batch_size 2 → 1/],
    ['gradient_accumulation_steps', { gradient_accumulation_steps: 1 }, /steps 2 → 1/],
    ['seed', { seed: 7 }, /seed 42 → 7/],
    ['dtype', { dtype: 'bfloat16' }, /dtype float32 → bfloat16/],
    ['max_length', { max_length: 32 }, /max_length 40 → 32/],
    [
      'data',
      { data_files: join(folder, 'eval.jsonl') },
      /data_rows 10 → 5, data_tokens \d+ → \d+, data_hash/,
    ],
  ])('refuses another %s by name and writes nothing', async (_key, change, message) => {
    await expect(resumed(change)).rejects.toMatchObject({
      code: 'CHECKPOINT_MISMATCH',
      message: expect.stringMatching(message) as string,
    });
    expect(() => readdirSync(path('resumed'))).toThrow(/ENOENT/);
  });

  it('names every difference at once', async () => {
    const change = { seed: 7, gradient_accumulation_steps: 1 };
    await expect(resumed(change)).rejects.toThrow(/seed 42 → 7, .*accumulation_steps 2 → 1/);
  });

  it('of another model is refused with the fields that differ', async () => {
    const other = path('other-model');
    cpSync(TINY_MODEL, other, { recursive: true });
    const config = readJson(join(other, 'config.json'));
    writeFileSync(
      join(other, 'config.json'),
      JSON.stringify({ ...config, layer_norm_epsilon: 1e-4 }),
    );
    await expect(resumed({ model_name_or_path: other })).rejects.toMatchObject({
      code: 'CHECKPOINT_MISMATCH',
      facts: { differing: ['layer_norm_epsilon'] },
    });
  });

  it('goes on with more steps and another learning rate, with a warning that names them', async () => {
    const told = await resumed({ max_steps: 10, learning_rate: 1e-3, save_strategy: 'no' });
    expect(told.steps.at(-1)!.step).toBe(10);
    expect(told.warnings).toEqual([
      expect.stringMatching(
        /step 3 .*max_steps 8 → 10, total_steps 8 → 10, learning_rate 0.005 → 0.001/,
      ),
    ]);
  });

  it('goes on on another device, with a warning that names both', async () => {
    const state = readJson(join(output, 'checkpoint-3/spillway.json'));
    const device = (state['settings'] as { readonly device: string }).device;
    const other = device === 'cpu' ? 'native' : 'cpu';
    const moved = path('moved');
    cpSync(join(output, 'checkpoint-3'), moved, { recursive: true });
    const settings = { ...(state['settings'] as object), device: other };
    writeFileSync(join(moved, 'spillway.json'), JSON.stringify({ ...state, settings }));
    const told = await resumed({ resume_from_checkpoint: moved, save_strategy: 'no' });
    expect(told.steps.at(-1)!.step).toBe(8);
    expect(told.warnings).toEqual([
      expect.stringMatching(`step 3 on device ${device}, .* ran on ${other}: it rounds otherwise`),
    ]);
    expect((await resumed({ save_strategy: 'no' })).warnings).toEqual([]);
  });

  it.runIf(native() !== undefined)('is resumed by the device that computes', async () => {
    const told = await resumed({ device: 'cpu', max_steps: 4, save_strategy: 'no' });
    expect(told.warnings).toContainEqual(expect.stringMatching(/on device cpu, .* ran on native/));
    expect(told.steps.at(-1)!.step).toBe(4);
  });

  it('with fewer steps than it has ends at once with its own weights', async () => {
    const told = await resumed({ max_steps: 2 });
    expect(told.steps).toEqual([]);
    expect(told.summary).toMatchObject({ global_step: 3 });
    expect(weightsIn(path('resumed')).equals(weightsIn(join(output, 'checkpoint-3')))).toBe(true);
  });

  it.each([
    ['spillway.json', (file: Buffer) => file.subarray(0, 50)],
    ['spillway.json', () => Buffer.from('{"format": 2}')],
    ['trainer_state.json', () => Buffer.from('[]')],
    ['trainer_state.json', () => Buffer.from('{"global_step": 4}')],
    ['optimizer.safetensors', (file: Buffer) => file.subarray(0, -8)],
    ['model.safetensors', (file: Buffer) => file.subarray(0, 100)],
  ])('with a broken %s (%#) is CHECKPOINT_CORRUPT and harms nothing', async (name, change) => {
    const broken = path('broken');
    rmSync(broken, { recursive: true, force: true });
    cpSync(join(output, 'checkpoint-3'), broken, { recursive: true });
    writeFileSync(join(broken, name), change(readFileSync(join(broken, name))));
    await expect(resumed({ resume_from_checkpoint: broken })).rejects.toMatchObject({
      code: 'CHECKPOINT_CORRUPT',
    });
    expect(() => readdirSync(path('resumed'))).toThrow(/ENOENT/);
  });

  it('without its optimizer states is refused', async () => {
    const bare = path('bare');
    cpSync(join(output, 'checkpoint-3'), bare, { recursive: true });
    rmSync(join(bare, 'optimizer.safetensors'));
    await expect(resumed({ resume_from_checkpoint: bare })).rejects.toThrow(/optimizer states/);
  });
});

describe('resume_from_checkpoint', () => {
  it('true without a checkpoint is an error, auto a fresh start', async () => {
    const resume = { resume_from_checkpoint: 'true', max_steps: 1, eval_strategy: 'no' };
    await expect(train(keysOf('none', resume))).rejects.toMatchObject({
      code: 'CHECKPOINT_NOT_FOUND',
    });
    expect(() => readdirSync(path('none'))).toThrow(/ENOENT/);
    const told = await train(keysOf('none', { ...resume, resume_from_checkpoint: 'auto' }));
    expect(told.starts[0]!.firstStep).toBe(0);
  });

  it('of a folder without a run is refused, be it a model or nothing', async () => {
    for (const from of [TINY_MODEL, path('nowhere')]) {
      const resume = { resume_from_checkpoint: from };
      await expect(train(keysOf('none-2', resume))).rejects.toMatchObject({
        code: 'CHECKPOINT_NOT_FOUND',
        message: expect.stringContaining(from) as string,
      });
    }
  });

  it('auto takes the newest whole checkpoint and no half-written one', async () => {
    const keys = keysOf('auto', { save_steps: 2, eval_strategy: 'no' });
    await train(keys, { stopAfterStep: 4 });
    for (const name of ['.tmp-checkpoint-6', 'checkpoint-9', 'checkpoint-x']) {
      mkdirSync(join(path('auto'), name));
      writeFileSync(join(path('auto'), name, 'model.safetensors'), 'half');
    }
    const told = await train({ ...keys, resume_from_checkpoint: 'auto' });
    expect(told.starts[0]!.firstStep).toBe(4);
  });

  it('auto passes over a checkpoint whose run state is broken, says so, and drops later metrics', async () => {
    const keys = keysOf('passed-over', { save_steps: 2, eval_strategy: 'no', logging_steps: 1 });
    await train(keys, { stopAfterStep: 4 });
    const output = path('passed-over');
    writeFileSync(join(output, 'checkpoint-4/spillway.json'), '{');
    const told = await train({ ...keys, resume_from_checkpoint: 'auto' });
    expect(told.starts[0]!.firstStep).toBe(2);
    expect(told.warnings).toContainEqual(expect.stringMatching(/checkpoint-4.*not valid JSON/));
    expect(metricsOf(output).map((record) => record['step'])).toEqual([1, 2, 3, 4, 5, 6, 7, 8]);
  });

  it('auto prefers the run that saved last to one with more steps', async () => {
    const keys = keysOf('rerun', { eval_strategy: 'no', save_steps: 2 });
    await train(keys, { stopAfterStep: 6 });
    await train(keys, { stopAfterStep: 2 });
    const told = await train({ ...keys, resume_from_checkpoint: 'auto' });
    expect(told.starts[0]!.firstStep).toBe(2);
  });

  it('of a finished run says so, and saves the final model only when it is missing', async () => {
    const keys = keysOf('finished', {
      max_steps: 2,
      eval_strategy: 'no',
      resume_from_checkpoint: 'auto',
    });
    await train(keys);
    const weights = weightsIn(path('finished'));
    const again = await train(keys);
    expect(again.events).toEqual([]);
    expect(again.infos.at(-1)).toMatch(/all 2 steps are done .*nothing is left to do/);
    rmSync(join(path('finished'), 'model.safetensors'));
    const repaired = await train(keys);
    expect(repaired.events).toEqual(['started', 'finished']);
    expect(repaired.summary).toMatchObject({ global_step: 2 });
    expect(weightsIn(path('finished')).equals(weights)).toBe(true);
  });

  it('of checkpoints that save_only_model made is refused by name, and skipped by auto', async () => {
    const keys = keysOf('only-model', { max_steps: 3, save_steps: 2, eval_strategy: 'no' });
    await train({ ...keys, save_only_model: true });
    expect(readdirSync(join(path('only-model'), 'checkpoint-2'))).not.toContain(
      'optimizer.safetensors',
    );
    const resume = train({ ...keys, resume_from_checkpoint: 'true' });
    await expect(resume).rejects.toMatchObject({
      code: 'CHECKPOINT_MISMATCH',
      message: expect.stringContaining('save_only_model') as string,
    });
    const told = await train({ ...keys, resume_from_checkpoint: 'auto' });
    expect(told.starts[0]!.firstStep).toBe(0);
    expect(told.warnings).toContainEqual(expect.stringContaining('save_only_model'));
  });
});
