// Goal: a run leaves a folder alone that another run works in, and gives it free when it ends.
import { existsSync, mkdirSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { silentLogger } from '../../core/logger.js';
import { lockOutput } from '../../src/train/output-lock.js';
import { TINY_MODEL, cyclicRows, train, workFolder, writeJsonl } from './train-run.js';

it('refuses an output_dir in use before it repairs or writes anything there', async () => {
  const work = workFolder();
  const output = join(work, 'out');
  const keys = {
    model_name_or_path: TINY_MODEL,
    data_files: writeJsonl(join(work, 'rows.jsonl'), cyclicRows(2)),
    output_dir: output,
    max_steps: 1,
  };
  expect(lockOutput(output, silentLogger)).toBeUndefined();
  await train(keys);
  // What the other run is writing; to a run that owns the folder it is a killed run's.
  mkdirSync(join(output, '.tmp-checkpoint-9'));
  const other = lockOutput(output, silentLogger)!;
  const before = readdirSync(output, { recursive: true }).sort();
  const message = expect.stringContaining('give another output_dir') as string;
  await expect(train(keys)).rejects.toMatchObject({ code: 'STORE_LOCKED', message });
  expect(readdirSync(output, { recursive: true }).sort()).toEqual(before);
  other.release();
  await train({ ...keys, resume_from_checkpoint: 'auto', max_steps: 2 });
  expect(existsSync(join(output, '.tmp-checkpoint-9'))).toBe(false);
  expect(readdirSync(output).filter((name) => name.includes('lock'))).toEqual([]);
});

it('holds a folder that the run itself has made', async () => {
  const work = workFolder();
  const keys = {
    model_name_or_path: TINY_MODEL,
    data_files: writeJsonl(join(work, 'rows.jsonl'), cyclicRows(8)),
    output_dir: join(work, 'out'),
    max_steps: 4,
  };
  const outcomes = await Promise.allSettled([train(keys), train(keys)]);
  const codes = outcomes.map((one) =>
    one.status === 'fulfilled' ? 'done' : (one.reason as { code?: string }).code,
  );
  expect(codes.sort()).toEqual(['STORE_LOCKED', 'done']);
});
