// Goal: evaluations have transformers' loss and happen, are written and decide what is saved as
// configured; the best model is the final one, byte for byte.
import { mkdirSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import { loadPretrained } from '../../src/checkpoint/load-pretrained.js';
import {
  TINY_MODEL,
  checkpointsIn,
  cyclicRows,
  metricsOf,
  readJson,
  timeless,
  train,
  weightsIn,
  workFolder,
  writeJsonl,
  type Keys,
  type Told,
} from './train-run.js';

const folder = workFolder();
const path = (name: string): string => join(folder, name);

/** Rows that training on cyclic rows makes ever less likely after the first steps. */
const foreignRows = Array.from({ length: 5 }, (_, row) => ({
  input_ids: Array.from({ length: 6 + row }, (__, i) => (17 * row + 29 * i + i * i) % 131),
}));

const BASE: Keys = {
  model_name_or_path: TINY_MODEL,
  data_files: writeJsonl(path('rows.jsonl'), cyclicRows(10)),
  eval_files: writeJsonl(path('foreign.jsonl'), foreignRows),
  token_cache: 'none',
  device_memory: '8MiB',
  host_memory: '16MiB',
  per_device_train_batch_size: 2,
  gradient_accumulation_steps: 2,
  max_steps: 8,
  learning_rate: 5e-3,
  logging_steps: 4,
  save_strategy: 'no',
  optimizer_workers: 1,
};

const keysOf = (output: string, changes: Keys): Keys => ({
  ...BASE,
  ...changes,
  output_dir: path(output),
});

/** Evaluations of a run: step and loss. */
const evaluationsOf = (told: Told): (readonly [number, number])[] =>
  told.records.flatMap((record) =>
    'eval_loss' in record ? [[record.step, record.eval_loss] as const] : [],
  );

it('has the token-weighted loss that transformers computes, whatever the batch size', async () => {
  const references = new URL('../../fixtures/references/gpt2-tiny.json', import.meta.url);
  const reference = JSON.parse(readFileSync(references, 'utf8')) as {
    readonly input_ids: readonly number[][];
    readonly labels: readonly number[][];
    readonly loss: number;
  };
  const rows = reference.input_ids.map((input_ids, row) => ({
    input_ids,
    labels: reference.labels[row],
  }));
  const evalFiles = writeJsonl(path('reference.jsonl'), rows);
  for (const batchSize of [1, 2]) {
    const changes = { eval_files: evalFiles, eval_on_start: true, max_steps: 1 };
    const keys = keysOf('reference', { ...changes, per_device_eval_batch_size: batchSize });
    const told = await train(keys);
    const [first] = told.records;
    expect(first).toMatchObject({
      step: 0,
      epoch: 0,
      eval_samples_per_second: expect.any(Number) as number,
    });
    const [[, loss] = [0, 0]] = evaluationsOf(told);
    expect(Math.abs(loss - reference.loss) / reference.loss).toBeLessThan(1e-5);
    expect((first as unknown as { eval_perplexity: number }).eval_perplexity).toBe(Math.exp(loss));
    expect(told.events.slice(0, 2)).toEqual(['started', 'evaluated 0']);
    expect(metricsOf(path('reference'))).toEqual(told.records);
  }
});

describe('load_best_model_at_end', () => {
  const keys = keysOf('best', {
    eval_strategy: 'steps',
    eval_steps: 2,
    save_strategy: 'steps',
    save_steps: 2,
    save_total_limit: 2,
    load_best_model_at_end: true,
    learning_rate: 3e-2,
    lr_scheduler_type: 'constant',
  });
  let told: Told;
  let best: readonly [number, number];
  let weights: Buffer;
  beforeAll(async () => {
    // Folders of other writers are none of the rotation's business.
    mkdirSync(join(path('best'), 'checkpoint-1'), { recursive: true });
    writeFileSync(join(path('best'), 'checkpoint-1/model.safetensors'), 'of another program');
    told = await train(keys);
    const evaluations = evaluationsOf(told);
    best = evaluations.reduce((least, one) => (one[1] < least[1] ? one : least));
    weights = weightsIn(path('best'));
  });

  it('ends with the weights of the checkpoint with the lowest loss, byte for byte', () => {
    expect(evaluationsOf(told).map(([step]) => step)).toEqual([2, 4, 6, 8]);
    expect(best[0]).toBeLessThan(8);
    expect(weights.equals(weightsIn(join(path('best'), `checkpoint-${best[0]}`)))).toBe(true);
    expect(weights.equals(weightsIn(join(path('best'), 'checkpoint-8')))).toBe(false);
  });

  it('keeps the best and the newest of the checkpoints, and what others wrote', () => {
    expect(told.saved).toEqual([2, 4, 6, 8]);
    expect(checkpointsIn(path('best'))).toEqual([1, best[0], 8]);
  });

  it('names the best in the summary and in trainer_state.json', () => {
    const named = {
      best_metric: best[1],
      best_model_checkpoint: join(path('best'), `checkpoint-${best[0]}`),
    };
    expect(told.summary).toMatchObject({ ...named, eval_loss: evaluationsOf(told).at(-1)![1] });
    expect(readJson(join(path('best'), 'summary.json'))).toMatchObject(named);
    const state = readJson(join(path('best'), 'checkpoint-8/trainer_state.json'));
    expect(state).toMatchObject({ ...named, best_global_step: best[0], eval_steps: 2 });
  });

  it('logs, evaluates and saves in this order, and writes every record', () => {
    expect(told.events.slice(3, 7)).toEqual(['logged 4', 'evaluated 4', 'saved 4', 'evaluated 6']);
    expect(metricsOf(path('best'))).toEqual(told.records);
    const state = readJson(join(path('best'), 'checkpoint-8/trainer_state.json'));
    expect(state['log_history']).toEqual(told.records);
  });

  it('survives an interruption', async () => {
    const output = path('best-stopped');
    await train({ ...keys, output_dir: output }, { stopAfterStep: 5 });
    const rest = await train({ ...keys, output_dir: output, resume_from_checkpoint: 'auto' });
    expect(weightsIn(output).equals(weights)).toBe(true);
    expect(timeless(metricsOf(output))).toEqual(timeless(told.records));
    expect(rest.summary).toMatchObject({ best_metric: best[1] });
    expect(checkpointsIn(output)).toEqual([best[0], 8]);
  });
});

it('save_strategy best saves exactly when an evaluation is lower than all before', async () => {
  const told = await train(
    keysOf('only-best', {
      eval_strategy: 'steps',
      eval_steps: 1,
      save_strategy: 'best',
      eval_files: writeJsonl(path('near.jsonl'), cyclicRows(4, 30)),
      learning_rate: 2e-2,
    }),
  );
  let lowest = Infinity;
  const improved = evaluationsOf(told).flatMap(([step, loss]) => {
    if (loss >= lowest) return [];
    lowest = loss;
    return [step];
  });
  expect(improved.length).toBeGreaterThan(1);
  expect(told.saved).toEqual(improved);
  expect(checkpointsIn(path('only-best'))).toEqual(improved);
});

it('strategies by epoch evaluate and save after each, and after the part at the end', async () => {
  const epoch = { eval_strategy: 'epoch', save_strategy: 'epoch', eval_split: 3 };
  const all = Object.entries(keysOf('epochs', { ...epoch, max_steps: -1 }));
  const keys = Object.fromEntries(all.filter(([name]) => name !== 'eval_files'));
  // 7 rows that are left, 2 to a micro-batch: 2 steps per epoch, 3 in one and a half.
  const told = await train({ ...keys, num_train_epochs: 1.5, save_total_limit: 1 });
  expect(told.starts[0]).toMatchObject({ rows: 7, evalRows: 3, totalSteps: 3 });
  expect(evaluationsOf(told).map(([step]) => step)).toEqual([2, 3]);
  expect(told.saved).toEqual([2, 3]);
  expect(checkpointsIn(path('epochs'))).toEqual([3]);
});

it('max_shard_size cuts checkpoints and the final model, the best one included', async () => {
  const output = path('shards');
  await train(
    keysOf('shards', {
      eval_strategy: 'steps',
      save_strategy: 'best',
      load_best_model_at_end: true,
      max_steps: 1,
      max_shard_size: '40KiB',
    }),
  );
  const checkpoint = join(output, 'checkpoint-1');
  const shards = readdirSync(checkpoint).filter((name) => /^model-.*safetensors$/.test(name));
  expect(shards.length).toBeGreaterThan(1);
  for (const name of [...shards, 'model.safetensors.index.json', 'config.json']) {
    const [saved, final] = [checkpoint, output].map((one) => readFileSync(join(one, name)));
    expect(final!.equals(saved!)).toBe(true);
  }
  const model = await loadPretrained(output);
  await model.close();
  const resumed = await train(
    keysOf('shards', { max_steps: 2, resume_from_checkpoint: 'true', eval_strategy: 'no' }),
  );
  expect(resumed.starts[0]!.firstStep).toBe(1);
});
