// Goal: a save appears whole or not at all, and what was saved before survives every failure.
import {
  existsSync,
  mkdirSync,
  readFileSync,
  readdirSync,
  renameSync,
  writeFileSync,
} from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';

import { describe, expect, it } from 'vitest';

import { SafetensorsFile } from '../../src/checkpoint/safetensors-reader.js';
import type { TensorToWrite } from '../../src/checkpoint/safetensors-writer.js';
import { saveModelFolder, type SaveModelRequest } from '../../src/checkpoint/save-model.js';
import { openDescriptorCount, temporaryFolder } from './temporary-folder.js';

const root = temporaryFolder();
let caseCount = 0;

function newFolder(): string {
  const folder = join(root, String(caseCount++));
  mkdirSync(folder);
  return folder;
}

/** A float32 tensor [300_000] filled with `value`. */
function filled(name: string, value: number): TensorToWrite {
  const read = async (_: number, target: Float32Array): Promise<void> => void target.fill(value);
  return { name, dtype: 'F32', shape: [300_000], read };
}

function bits(name: string, dtype: 'BF16' | 'U16'): TensorToWrite {
  const read = async (_: number, target: Uint16Array): Promise<void> => void target.fill(0x3f80);
  return { name, dtype, shape: [3], read };
}

function failing(name: string): TensorToWrite {
  const read = async (offset: number): Promise<void> => {
    if (offset > 0) throw new Error('the tier failed');
  };
  return { name, dtype: 'F32', shape: [300_000], read };
}

const config = { model_type: 'gpt2', torch_dtype: 'float16', n_layer: 2 };

async function writeCompanions(folder: string): Promise<void> {
  await writeFile(join(folder, 'config.json'), JSON.stringify(config));
  await writeFile(join(folder, 'tokenizer.json'), '{}');
}

function request(folder: string, value: number): SaveModelRequest {
  return {
    folder,
    mode: 'replace',
    params: [filled('w', value)],
    optimizer: [bits('w.master_lo', 'U16'), filled('w.exp_avg', 0.5)],
    writeCompanions,
    jsonFiles: { 'trainer_state.json': { global_step: value } },
  };
}

function json(...path: string[]): unknown {
  return JSON.parse(readFileSync(join(...path), 'utf8'));
}

async function firstValue(folder: string, fileName = 'model.safetensors'): Promise<number> {
  const file = await SafetensorsFile.open(join(folder, fileName));
  const target = new Float32Array(1);
  await file.readElements(file.entries[0]!, 299_999, target);
  await file.close();
  return target[0]!;
}

/** Every file under `folder` with its content. */
function snapshot(folder: string): Record<string, string> {
  return Object.fromEntries(
    readdirSync(folder, { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isFile())
      .map((entry) => join(entry.parentPath, entry.name))
      .map((path) => [path, readFileSync(path).toString('base64')]),
  );
}

describe('a checkpoint folder', () => {
  it('holds weights, optimizer states, companions and JSON files, and nothing else', async () => {
    const parent = newFolder();
    const folder = join(parent, 'checkpoint-5');
    await saveModelFolder(request(folder, 5));
    expect(readdirSync(parent)).toEqual(['checkpoint-5']);
    expect(readdirSync(folder).sort()).toEqual([
      'config.json',
      'model.safetensors',
      'optimizer.safetensors',
      'tokenizer.json',
      'trainer_state.json',
    ]);
    expect(await firstValue(folder)).toBe(5);
    expect(await firstValue(folder, 'optimizer.safetensors')).toBe(0.5);
    expect(json(folder, 'trainer_state.json')).toEqual({ global_step: 5 });
  });

  it('creates missing parents and replaces an older folder of its name', async () => {
    const parent = join(newFolder(), 'runs', 'one');
    const folder = join(parent, 'checkpoint-5');
    await saveModelFolder(request(folder, 1));
    writeFileSync(join(folder, 'stale.txt'), '');
    await saveModelFolder(request(`${folder}/`, 2));
    expect(readdirSync(parent)).toEqual(['checkpoint-5']);
    expect(existsSync(join(folder, 'stale.txt'))).toBe(false);
    expect(await firstValue(folder)).toBe(2);
  });

  const words = [
    [{ torch_dtype: 'float16' }, 'F32', { torch_dtype: 'float32' }],
    [{ dtype: 'float16' }, 'BF16', { dtype: 'bfloat16' }],
    [{ dtype: 'x', torch_dtype: 'x' }, 'BF16', { dtype: 'bfloat16', torch_dtype: 'bfloat16' }],
    [{ n_layer: 2 }, 'F32', { n_layer: 2, torch_dtype: 'float32' }],
  ] as const;

  it.each(words)('turns the config %j into that of weights in %s', async (given, dtype, want) => {
    const folder = join(newFolder(), 'm');
    await saveModelFolder({
      folder,
      mode: 'replace',
      params: [dtype === 'F32' ? filled('w', 1) : bits('w', dtype)],
      writeCompanions: (target) => writeFile(join(target, 'config.json'), JSON.stringify(given)),
    });
    expect(json(folder, 'config.json')).toEqual(want);
  });

  const steps: readonly (readonly [string, Partial<SaveModelRequest>])[] = [
    ['a weight', { params: [filled('v', 1), failing('w')] }],
    ['an optimizer state', { optimizer: [failing('w.exp_avg')] }],
    ['a companion', { writeCompanions: () => Promise.reject(new Error('the tier failed')) }],
    [
      'a JSON file',
      {
        jsonFiles: {
          'spillway.json': {
            toJSON: () => {
              throw new Error('the tier failed');
            },
          },
        },
      },
    ],
  ];

  it.each(steps)('leaves everything as it was when %s fails', async (_, change) => {
    const parent = newFolder();
    const folder = join(parent, 'checkpoint-5');
    await saveModelFolder(request(folder, 1));
    await saveModelFolder(request(join(parent, 'checkpoint-4'), 4));
    const earlier = snapshot(parent);
    const before = openDescriptorCount(root);
    for (const mode of ['replace', 'into'] as const) {
      await expect(saveModelFolder({ ...request(folder, 2), ...change, mode })).rejects.toThrow(
        'the tier failed',
      );
      expect(snapshot(parent)).toEqual(earlier);
      expect(readdirSync(parent).sort()).toEqual(['checkpoint-4', 'checkpoint-5']);
      expect(readdirSync(folder)).not.toContain('.tmp-save');
    }
    expect(openDescriptorCount(root)).toBe(before);
  });

  it('reports a full disk as OUTPUT_FULL and keeps the earlier save', async () => {
    const folder = join(newFolder(), 'checkpoint-5');
    await saveModelFolder(request(folder, 1));
    const full = async (): Promise<void> => {
      throw Object.assign(new Error('no space left on device'), { code: 'ENOSPC' });
    };
    await expect(
      saveModelFolder({ ...request(folder, 2), writeCompanions: full }),
    ).rejects.toMatchObject({ code: 'OUTPUT_FULL' });
    expect(await firstValue(folder)).toBe(1);
  });

  it('completes a save that was killed while the older folder stood aside', async () => {
    const parent = newFolder();
    const folder = join(parent, 'checkpoint-5');
    await saveModelFolder(request(folder, 1));
    renameSync(folder, join(parent, '.old-checkpoint-5'));
    mkdirSync(join(parent, '.tmp-checkpoint-5'));
    writeFileSync(join(parent, '.tmp-checkpoint-5', 'half'), '');
    await expect(
      saveModelFolder({ ...request(folder, 2), params: [failing('w')] }),
    ).rejects.toThrow('the tier failed');
    expect(await firstValue(folder)).toBe(1);
    expect(readdirSync(parent)).toEqual(['checkpoint-5']);
    mkdirSync(join(parent, '.old-checkpoint-5'));
    await saveModelFolder(request(folder, 3));
    expect(await firstValue(folder)).toBe(3);
    expect(readdirSync(parent)).toEqual(['checkpoint-5']);
  });

  it('refuses a destination below a file as PATH_UNWRITABLE', async () => {
    const file = join(newFolder(), 'file');
    writeFileSync(file, 'kept');
    for (const mode of ['replace', 'into'] as const) {
      await expect(
        saveModelFolder({ ...request(join(file, 'out'), 1), mode }),
      ).rejects.toMatchObject({ code: 'PATH_UNWRITABLE' });
    }
    expect(readFileSync(file, 'utf8')).toBe('kept');
  });
});

describe('a final save into an existing folder', () => {
  it('adds and replaces its own files and leaves the others alone', async () => {
    const folder = newFolder();
    writeFileSync(join(folder, 'metrics.jsonl'), '{"step":1}\n');
    await saveModelFolder(request(join(folder, 'checkpoint-1'), 1));
    const final = { folder, mode: 'into', writeCompanions, jsonFiles: { 's.json': {} } } as const;
    await saveModelFolder({ ...final, params: [filled('w', 7)] });
    await saveModelFolder({ ...final, params: [filled('w', 8)] });
    expect(readdirSync(folder).sort()).toEqual([
      'checkpoint-1',
      'config.json',
      'metrics.jsonl',
      'model.safetensors',
      's.json',
      'tokenizer.json',
    ]);
    expect(await firstValue(folder)).toBe(8);
    expect(readFileSync(join(folder, 'metrics.jsonl'), 'utf8')).toBe('{"step":1}\n');
    expect(await firstValue(join(folder, 'checkpoint-1'))).toBe(1);
  });
});
