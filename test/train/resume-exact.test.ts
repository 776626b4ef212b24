// Goal: a run that was interrupted and resumed is, bit for bit, the run that never stopped, also
// under other budgets, placements, worker counts and orders.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import { elsewhere, resumeKeys } from './resume-keys.js';
import {
  checkpointsIn,
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

/** What two runs of the same training must have in common. */
function outcomeOf(output: string, told: readonly Told[]): object {
  const final = told.at(-1)!.summary!;
  const state = readJson(join(path(output), `checkpoint-8/trainer_state.json`));
  const spillway = readJson(join(path(output), 'checkpoint-8/spillway.json'));
  return {
    losses: told.flatMap((one) => one.steps),
    weights: weightsIn(path(output)).toString('base64'),
    states: readFileSync(join(path(output), 'checkpoint-8/optimizer.safetensors')).toString(
      'base64',
    ),
    metrics: timeless(metricsOf(path(output))),
    history: timeless(state['log_history'] as object[]),
    best: [state['best_metric'], state['best_global_step']],
    tokens: [final.num_tokens, spillway['num_tokens']],
    trainLoss: final.train_loss,
    evalLoss: final.eval_loss,
  };
}

describe.each(['float32', 'bfloat16'])('%s', (dtype) => {
  const whole = `whole-${dtype}`;
  let expected: object;
  beforeAll(async () => {
    expected = outcomeOf(whole, [await train(keysOf(whole, { dtype }))]);
  });

  it.each([
    ['in the same place', 4, {}, {}],
    ['within a logging interval, from host to NVMe', 5, {}, elsewhere(folder)],
    ['from NVMe to host', 3, elsewhere(folder), {}],
    ['before the first epoch ends', 1, {}, { micro_batch_order: 'horizontal' }],
  ])('resumes %s after step %i', async (_name, stop, before, after) => {
    const output = `stopped-${dtype}-${stop}`;
    const first = await train(keysOf(output, { dtype }, before), { stopAfterStep: stop });
    expect(first.interruptedAt).toBe(stop);
    expect(checkpointsIn(path(output))).toEqual([stop]);
    const resume = { dtype, resume_from_checkpoint: 'auto' };
    const second = await train(keysOf(output, resume, after));
    expect(second.starts[0]).toMatchObject({ firstStep: stop, totalSteps: 8 });
    expect(second.warnings).toEqual([]);
    expect(outcomeOf(output, [first, second])).toEqual(expected);
  });

  it('resumes in the evaluation that a signal broke off', async () => {
    const output = `evaluation-${dtype}`;
    const first = await train(keysOf(output, { dtype }), { stopInEvaluationAt: 4 });
    expect(first.interruptedAt).toBe(4);
    expect(metricsOf(path(output)).map((record) => record['eval_loss'] !== undefined)).toEqual([
      true,
      false,
    ]);
    const second = await train(keysOf(output, { dtype, resume_from_checkpoint: 'true' }));
    expect(outcomeOf(output, [first, second])).toEqual(expected);
  });
});

it('packed rows and rows set aside for evaluation are found again', async () => {
  const packed = { packing: true, eval_split: 0.3, num_train_epochs: 4, max_steps: -1 };
  const keys = (output: string): Keys => {
    const all = Object.entries(keysOf(output, packed));
    return Object.fromEntries(all.filter(([name]) => name !== 'eval_files'));
  };
  const whole = await train(keys('packed'));
  const first = await train(keys('packed-stopped'), { stopAfterStep: 2 });
  const second = await train({ ...keys('packed-stopped'), resume_from_checkpoint: 'auto' });
  expect([...first.steps, ...second.steps]).toEqual(whole.steps);
  expect(whole.steps.length).toBeGreaterThan(2);
  const [expected, actual] = ['packed', 'packed-stopped'].map((name) => weightsIn(path(name)));
  expect(actual!.equals(expected!)).toBe(true);
  expect(timeless(metricsOf(path('packed-stopped')))).toEqual(timeless(metricsOf(path('packed'))));
});
