// Goal: rows within a model's window are trained on and evaluated, though padding would cross it.
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';
import { silentLogger } from '../../core/logger.js';
import { loadConfig } from '../../src/config/load-config.js';
import { runEvaluate } from '../../src/train/run-evaluate.js';
import { train, workFolder, writeJsonl, type Keys } from './train-run.js';

/** Models whose every layer has a window of 17 tokens. */
const MODELS = ['phi3-tied-tiny', 'mistral-tiny'];

const folder = workFolder();

function keysOf(model: string, maxLength: number, lengths: readonly number[]): Keys {
  const rows = lengths.map((length, row) => ({
    input_ids: Array.from({ length }, (_, t) => (row * 5 + t * 7) % 60),
  }));
  const name = `${model}-${maxLength}-${lengths.join('-')}`;
  const files = writeJsonl(join(folder, `${name}.jsonl`), rows);
  return {
    model_name_or_path: fileURLToPath(new URL(`../../fixtures/${model}`, import.meta.url)),
    data_files: files,
    eval_files: files,
    eval_strategy: 'steps',
    eval_steps: 1,
    output_dir: join(folder, name),
    max_length: maxLength,
    per_device_train_batch_size: 2,
    max_steps: 2,
    logging_steps: 1,
    save_strategy: 'no',
    token_cache: 'none',
  };
}

async function evaluate(keys: Keys) {
  const config = await loadConfig({ flags: new Map(Object.entries(keys)) });
  return runEvaluate(config, { logger: silentLogger });
}

it.each(MODELS)(
  '%s trains on rows as long as its window as with that max_length',
  async (model) => {
    // With max_length 17 there is nothing to round.
    const exact = keysOf(model, 17, [17, 3, 17]);
    const wide = keysOf(model, 40, [17, 3, 17]);
    const told = await train(wide);
    expect(told.steps).toHaveLength(2);
    expect(told.steps).toEqual((await train(exact)).steps);
    expect((await evaluate(wide)).eval_loss).toBe((await evaluate(exact)).eval_loss);
  },
);

it.each(MODELS)('%s refuses a row beyond its window', async (model) => {
  await expect(train(keysOf(model, 40, [17, 18]))).rejects.toMatchObject({
    code: 'MODEL_UNSUPPORTED',
    facts: { field: 'sliding_window', limit: 17, length: 18 + 6 },
  });
});
