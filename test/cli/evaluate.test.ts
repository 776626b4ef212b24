// Goal: spillway evaluate finds the training engine's loss on the right rows, under small budgets.
import { writeFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { silentLogger } from '../../core/logger.js';
import { loadPretrained } from '../../src/checkpoint/load-pretrained.js';
import { collate } from '../../src/data/collate.js';
import { exampleBatchOf } from '../../src/data/example-batch.js';
import { loadDataset } from '../../src/data/load-dataset.js';
import { sequentialBatches } from '../../src/data/sequential-batches.js';
import { Engine } from '../../src/engine/engine.js';
import { runEvaluateCommand } from '../../src/cli/evaluate-command.js';
import type { EvaluateReport } from '../../src/train/run-evaluate.js';
import { makeGenerationFolder, type GenerationFolder } from './generation-folder.js';

const ROWS = ['one', 'two and a half', 'three, then', 'four', 'five is the last of them'];

let model: GenerationFolder;
let evalFile: string;
let dataFile: string;
beforeAll(async () => {
  model = await makeGenerationFolder();
  evalFile = model.path('eval.jsonl');
  dataFile = model.path('data.jsonl');
  writeFileSync(evalFile, ROWS.map((text) => `${JSON.stringify({ text })}\n`).join(''));
  writeFileSync(dataFile, `${JSON.stringify({ text: 'something else' })}\n`);
});
afterAll(() => model.remove());

async function evaluate(...flags: string[]): Promise<EvaluateReport> {
  const lines: string[] = [];
  const args = ['--model_name_or_path', model.folder, '--token_cache', 'none', ...flags];
  const print = (line: string): void => void lines.push(line);
  expect(await runEvaluateCommand(args, { json: true, print })).toBe(0);
  expect(lines).toHaveLength(1);
  return JSON.parse(lines[0]!) as EvaluateReport;
}

/** What the training engine says. */
async function trainingLoss(batchSize: number): Promise<{ loss: number; terms: number }> {
  const pretrained = await loadPretrained(model.folder);
  const maxLength = 64;
  const { folder, vocabSize } = pretrained;
  const common = { textField: 'text', tokenCache: 'none', logger: silentLogger };
  const files = [evalFile];
  const dataset = await loadDataset({ ...common, files, maxLength, folder, vocabSize });
  const engine = await Engine.create({
    model: pretrained,
    exampleBatch: exampleBatchOf([dataset], batchSize, [maxLength]),
  });
  try {
    let [sum, terms] = [0, 0];
    for (const batch of sequentialBatches(dataset.length, batchSize)) {
      const part = await engine.evaluate(collate(dataset, [batch], [maxLength]));
      sum += part.loss * part.terms;
      terms += part.terms;
    }
    return { loss: sum / terms, terms };
  } finally {
    await engine.close();
    await pretrained.close();
  }
}

describe('evaluate', () => {
  it('prints the training engine\u2019s loss, its perplexity, and what was used', async () => {
    const expected = await trainingLoss(2);
    const found = await evaluate('--eval_files', evalFile, '--per_device_eval_batch_size', '2');
    expect(found.eval_loss).toBe(expected.loss);
    expect(found.eval_perplexity).toBe(Math.exp(expected.loss));
    expect([found.eval_samples, found.eval_tokens]).toEqual([ROWS.length, expected.terms]);
    expect(found.peak_bytes.device).toBeGreaterThan(0);
  });

  it('prefers eval_files, and takes data_files or their split without', async () => {
    const both = await evaluate('--data_files', dataFile, '--eval_files', evalFile);
    const own = await evaluate('--eval_files', evalFile);
    expect(both.eval_loss).toBe(own.eval_loss);
    const data = await evaluate('--data_files', evalFile);
    expect(data.eval_loss).toBe(own.eval_loss);
    const split = await evaluate('--data_files', evalFile, '--eval_split', '2');
    expect(split.eval_samples).toBe(2);
  });

  it('finds the same loss for packed rows', async () => {
    const flags = ['--eval_files', evalFile, '--max_length', '40'];
    const packed = await evaluate(...flags, '--packing');
    const apart = await evaluate(...flags);
    expect(packed.eval_samples).toBeLessThan(apart.eval_samples);
    expect(packed.eval_tokens).toBe(apart.eval_tokens);
    expect(packed.eval_loss).toBeCloseTo(apart.eval_loss, 6);
  });

  it('finds the same bits with weights on NVMe', async () => {
    const flags = ['--eval_files', evalFile];
    const expected = await evaluate(...flags);
    const far = ['--offload_param.device', 'nvme', '--nvme_path', model.path('nvme')];
    const found = await evaluate(...flags, ...far, '--device_memory', '1MiB');
    expect(found.eval_loss).toBe(expected.eval_loss);
    expect(found.bytes_moved.nvme_read).toBeGreaterThan(0);
    expect(found.peak_bytes.device).toBeLessThanOrEqual(2 ** 20);
  });

  it('prints lines for people', async () => {
    const lines: string[] = [];
    const args = ['--model_name_or_path', model.folder, '--eval_files', evalFile];
    const print = (line: string): void => void lines.push(line);
    expect(await runEvaluateCommand(args, { print })).toBe(0);
    expect(lines[0]).toMatch(/^loss \d+\.\d{4}, perplexity \d+/);
    expect(lines.at(-1)).toContain('peak bytes: device');
  });
});

it('evaluate says where a model folder belongs', async () => {
  await expect(runEvaluateCommand([model.folder])).rejects.toMatchObject({
    code: 'CONFIG_NOT_FOUND',
    message: expect.stringMatching(/is a folder, .* as --model_name_or_path$/) as string,
  });
});

describe('evaluate refuses', () => {
  it.each<[string, readonly string[], string]>([
    ['no model', ['--eval_files', 'x'], 'CONFIG_INVALID'],
    ['nothing to evaluate', ['--model_name_or_path', 'MODEL'], 'CONFIG_INVALID'],
    [
      'a file that is not there',
      ['--model_name_or_path', 'MODEL', '--eval_files', 'nowhere.jsonl'],
      'DATA_NOT_FOUND',
    ],
    ['two files', ['a.yaml', 'b.yaml'], 'USAGE_INVALID'],
    [
      'a budget that is too small',
      ['--model_name_or_path', 'MODEL', '--eval_files', 'EVAL', '--device_memory', '4KiB'],
      'BUDGET_TOO_SMALL',
    ],
  ])('%s', async (_, args, code) => {
    const places: Readonly<Record<string, string>> = { MODEL: model.folder, EVAL: evalFile };
    const given = args.map((arg) => places[arg] ?? arg);
    await expect(runEvaluateCommand(given)).rejects.toMatchObject({ code });
  });
});
