// Goal: what is written as shards with an index is read back by name, for weights and states alike.
import { mkdirSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

import { describe, expect, it } from 'vitest';

import { openTensorFiles } from '../../src/checkpoint/tensor-files.js';
import { writeTensorFiles } from '../../src/checkpoint/write-tensor-files.js';
import type { TensorToWrite } from '../../src/checkpoint/safetensors-writer.js';
import { floatFile } from './safetensors-file.js';
import { openDescriptorCount, temporaryFolder } from './temporary-folder.js';

const root = temporaryFolder();
let folderCount = 0;

function newFolder(): string {
  const folder = join(root, String(folderCount++));
  mkdirSync(folder);
  return folder;
}

function floats(name: string, length: number, first: number): TensorToWrite {
  const read = async (offset: number, target: Float32Array): Promise<void> => {
    for (let i = 0; i < target.length; i += 1) target[i] = first + offset + i;
  };
  return { name, dtype: 'F32', shape: [length], read };
}

const halves: TensorToWrite = {
  name: 'h',
  dtype: 'U16',
  shape: [2],
  read: async (_, target: Uint16Array) => void target.fill(9),
};

describe.each(['model', 'optimizer'] as const)('files of the stem %s', (stem) => {
  it('are one file below the limit', async () => {
    const folder = newFolder();
    await writeTensorFiles(folder, stem, [floats('a', 4, 0), halves], 20);
    expect(readdirSync(folder)).toEqual([`${stem}.safetensors`]);
    const files = await openTensorFiles(folder, stem);
    expect([...files.tensors.keys()].sort()).toEqual(['a', 'h']);
    await files.close();
  });

  it('are shards and an index beyond it, which hold every value', async () => {
    const folder = newFolder();
    const tensors = [floats('b', 3, 100), floats('a', 50, 0), halves, floats('__proto__', 1, 7)];
    await writeTensorFiles(folder, stem, tensors, 20);
    const index: unknown = JSON.parse(
      readFileSync(join(folder, `${stem}.safetensors.index.json`), 'utf8'),
    );
    const shard = (number: number): string => `${stem}-0000${number}-of-00002.safetensors`;
    expect(readdirSync(folder).sort()).toEqual([
      shard(1),
      shard(2),
      `${stem}.safetensors.index.json`,
    ]);
    expect(index).toEqual({
      metadata: { ...(stem === 'model' ? { total_parameters: 56 } : {}), total_size: 220 },
      weight_map: Object.fromEntries([
        ['__proto__', shard(2)],
        ['a', shard(1)],
        ['b', shard(2)],
        ['h', shard(2)],
      ]),
    });
    const before = openDescriptorCount(root);
    const files = await openTensorFiles(folder, stem);
    for (const [name, first, length] of [
      ['b', 100, 3],
      ['a', 0, 50],
      ['__proto__', 7, 1],
    ] as const) {
      const { file, entry } = files.tensors.get(name)!;
      const target = new Float32Array(length);
      await file.readElements(entry, 0, target);
      expect([...target]).toEqual(Array.from({ length }, (_, i) => first + i));
    }
    expect(openDescriptorCount(root)).toBe(before + 2);
    await files.close();
    expect(openDescriptorCount(root)).toBe(before);
  });

  it('are missed by name where there are none', async () => {
    const folder = newFolder();
    writeFileSync(join(folder, 'other.safetensors'), floatFile({ x: [1] }));
    await expect(openTensorFiles(folder, stem)).rejects.toMatchObject({
      code: 'MODEL_NOT_FOUND',
      message: expect.stringContaining(`${stem}.safetensors.index.json`) as string,
    });
  });
});
