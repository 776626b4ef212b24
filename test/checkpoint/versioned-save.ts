/**
 * @file Saves whose every part bears one number, so that a mixture of two saves shows.
 */
import { readFile, readdir, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';

import { HuggingFaceFolder } from '../../src/checkpoint/hugging-face-folder.js';
import type { TensorToWrite } from '../../src/checkpoint/safetensors-writer.js';
import type { SaveModelRequest } from '../../src/checkpoint/save-model.js';
import { openTensorFiles, type TensorFiles } from '../../src/checkpoint/tensor-files.js';

/** What a save is like. */
export interface SaveShape {
  /** Files of weights and of optimizer states; the names of a sharded save differ. */
  readonly sharded: boolean;
  readonly optimizer: boolean;
}

const NAMES = ['a', 'b', 'c'];
const LENGTH = 8;

/** The save number `version`. `pause` is awaited within each tensor. */
export function versionedSave(
  folder: string,
  mode: 'replace' | 'into',
  version: number,
  shape: SaveShape,
  pause: () => Promise<void> = () => Promise.resolve(),
): SaveModelRequest {
  const tensor = (name: string): TensorToWrite => ({
    name,
    dtype: 'F32',
    shape: [LENGTH],
    read: async (_: number, target: Float32Array): Promise<void> => {
      await pause();
      target.fill(version);
    },
  });
  return {
    folder,
    mode,
    params: NAMES.map(tensor),
    ...(shape.optimizer ? { optimizer: NAMES.map((name) => tensor(`${name}.exp_avg`)) } : {}),
    // Two shards, [a, b] and [c].
    ...(shape.sharded ? { maxShardBytes: 2 * LENGTH * 4 } : {}),
    writeCompanions: async (target) => {
      await writeFile(join(target, 'config.json'), JSON.stringify({ version, shape }));
      await writeFile(join(target, 'tokenizer.json'), JSON.stringify({ version }));
    },
    jsonFiles: { 'trainer_state.json': { version } },
  };
}

/**
 * The number that all parts of the save in `folder` bear.
 *
 * @throws when it cannot be loaded (coded), or is incomplete or a mixture (not coded)
 */
export async function versionOf(folder: string): Promise<number> {
  const opened = await HuggingFaceFolder.open(folder);
  try {
    const { version, shape } = opened.config as unknown as { version: number; shape: SaveShape };
    const found = new Set([version, ...(await valuesOf(opened, ''))]);
    for (const name of ['tokenizer.json', 'trainer_state.json']) {
      const json = JSON.parse(await readFile(join(folder, name), 'utf8')) as { version: number };
      found.add(json.version);
    }
    const names = await readdir(folder);
    if (shape.optimizer) {
      const states = await openTensorFiles(folder, 'optimizer');
      for (const value of await valuesOf(states, '.exp_avg')) found.add(value);
      await states.close();
    } else if (names.some((name) => name.startsWith('optimizer'))) {
      throw new Error(`optimizer states of another save: ${names.join(' ')}`);
    }
    const both = names.includes('model.safetensors') && names.some((name) => /of-\d+/.test(name));
    if (both) throw new Error(`weights of two saves: ${names.join(' ')}`);
    if (found.size !== 1) throw new Error(`a mixture of ${[...found].join(', ')} in ${folder}`);
    return version;
  } finally {
    await opened.close();
  }
}

async function valuesOf(files: Pick<TensorFiles, 'tensors'>, suffix: string): Promise<number[]> {
  const values: number[] = [];
  for (const name of NAMES) {
    const stored = files.tensors.get(`${name}${suffix}`);
    if (stored === undefined) throw new Error(`no tensor ${name}${suffix}`);
    const target = new Float32Array(LENGTH);
    await stored.file.readElements(stored.entry, 0, target);
    values.push(...target);
  }
  return values;
}

/** Versions of all folders under final names `checkpoint-<step>` in `parent`, by step. */
export async function checkpointVersions(parent: string): Promise<Map<number, number>> {
  const versions = new Map<number, number>();
  for (const name of await readdir(parent)) {
    const step = /^checkpoint-(\d+)$/.exec(name)?.[1];
    if (step === undefined || !(await stat(join(parent, name))).isDirectory()) continue;
    versions.set(Number(step), await versionOf(join(parent, name)));
  }
  return versions;
}
