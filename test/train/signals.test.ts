// Goal: a signal ends a run where it is, and leaves a checkpoint as soon as there is one to leave.
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { resumeKeys } from './resume-keys.js';
import { checkpointsIn, cyclicRows, train, workFolder, writeJsonl } from './train-run.js';

const folder = workFolder();
const path = (name: string): string => join(folder, name);
const keysOf = resumeKeys(folder);

it('while data are read ends the run with nothing written', async () => {
  const run = train(keysOf('reading'), { stopInPreparation: true });
  await expect(run).rejects.toMatchObject({ name: 'AbortError' });
  expect(existsSync(path('reading'))).toBe(false);
});

it('in the evaluation before the first step ends the run without a checkpoint', async () => {
  const keys = keysOf('start', { eval_on_start: true });
  await expect(train(keys, { stopInEvaluationAt: 0 })).rejects.toMatchObject({
    name: 'AbortError',
  });
  expect(checkpointsIn(path('start'))).toEqual([]);
});

it('in the middle of an evaluation stops evaluating and saves the step', async () => {
  const evalFiles = writeJsonl(path('long-eval.jsonl'), cyclicRows(40));
  const told = await train(keysOf('evaluating', { eval_files: evalFiles }), {
    stopInEvaluationAt: 2,
  });
  expect(told.events).toEqual(['started', 'saved 2', 'interrupted 2']);
  expect(told.records).toEqual([]);
});

it('in the last evaluation leaves a checkpoint whose resumption only evaluates and concludes', async () => {
  const keys = keysOf('last', { max_steps: 2 });
  const told = await train(keys, { stopInEvaluationAt: 2 });
  expect(told.events.slice(1)).toEqual(['logged 2', 'saved 2', 'interrupted 2']);
  expect(existsSync(join(path('last'), 'model.safetensors'))).toBe(false);
  const rest = await train({ ...keys, resume_from_checkpoint: 'auto' });
  expect(rest.steps).toEqual([]);
  expect(rest.events).toEqual(['started', 'evaluated 2', 'saved 2', 'finished']);
});

it('after the last step does not keep the run from its end', async () => {
  const keys = keysOf('end', { max_steps: 2, eval_strategy: 'no', save_strategy: 'no' });
  const told = await train(keys, { stopAfterStep: 2 });
  expect(told.events.at(-1)).toBe('finished');
  expect(existsSync(join(path('end'), 'model.safetensors'))).toBe(true);
});

it('saves a checkpoint though save_strategy is no', async () => {
  const keys = keysOf('no-strategy', { save_strategy: 'no', eval_strategy: 'no' });
  const told = await train(keys, { stopAfterStep: 1 });
  expect(told.interruptedAt).toBe(1);
  expect(checkpointsIn(path('no-strategy'))).toEqual([1]);
});
