// Goal: packed rows may be longer than a model's window where no document is.
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';
import { train, workFolder, writeJsonl, type Keys } from './train-run.js';

/** Its second layer has a window of 17 tokens. */
const MODEL = fileURLToPath(new URL('../../fixtures/qwen3-bias-tiny', import.meta.url));

const folder = workFolder();

function keysOf(name: string, lengths: readonly number[]): Keys {
  const rows = lengths.map((length, row) => ({
    input_ids: Array.from({ length }, (_, t) => (row * 5 + t * 7) % 60),
  }));
  return {
    model_name_or_path: MODEL,
    data_files: writeJsonl(join(folder, `${name}.jsonl`), rows),
    output_dir: join(folder, name),
    max_length: 34,
    packing: true,
    per_device_train_batch_size: 2,
    max_steps: 3,
    save_strategy: 'no',
    token_cache: 'none',
  };
}

it('trains on documents within the window, also where a row is mostly pads', async () => {
  // Sequences of 34 tokens and one of 9 beside them.
  const told = await train(keysOf('within', [17, 17, 17, 17, 9]));
  expect(told.steps).toHaveLength(3);
});

it('refuses a document beyond it, before anything is written', async () => {
  const keys = keysOf('beyond', [17, 18, 5]);
  await expect(train(keys)).rejects.toMatchObject({
    code: 'MODEL_UNSUPPORTED',
    facts: { field: 'sliding_window', limit: 17, length: 18 },
  });
  expect(readdirSync(keys['output_dir'] as string)).toEqual([]);
});
