// Goal: any mutation of an index of shards is refused by name or leads to the tensors it names.
import { mkdirSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';

import { describe, expect, it } from 'vitest';

import { openTensorFiles } from '../../src/checkpoint/tensor-files.js';
import { floatFile } from '../checkpoint/safetensors-file.js';
import { openDescriptorCount, temporaryFolder } from '../checkpoint/temporary-folder.js';
import { fuzzReader } from './fuzz-reader.js';
import { byteMutations } from './mutate-bytes.js';
import { jsonMutations } from './mutate-json.js';

const INDEX = {
  metadata: { total_size: 36, total_parameters: 9 },
  weight_map: {
    'model.x': 'model-00001-of-00002.safetensors',
    'model.y': 'model-00001-of-00002.safetensors',
    'model.z': 'model-00002-of-00002.safetensors',
  },
};
/** The tensors of each file, whatever an index says. */
const SHARDS: Readonly<Record<string, Readonly<Record<string, readonly number[]>>>> = {
  'model-00001-of-00002.safetensors': { 'model.x': [2], 'model.y': [3] },
  'model-00002-of-00002.safetensors': { 'model.z': [4] },
  'other.safetensors': { other: [1] },
};

const folder = join(temporaryFolder('memory'), 'model');
mkdirSync(folder);
for (const [name, tensors] of Object.entries(SHARDS)) {
  writeFileSync(join(folder, name), floatFile(tensors));
}

async function read(file: Buffer): Promise<void> {
  writeFileSync(join(folder, 'model.safetensors.index.json'), file);
  const files = await openTensorFiles(folder, 'model');
  try {
    const { weight_map: map } = JSON.parse(file.toString('utf8')) as {
      weight_map: Record<string, string>;
    };
    const named = new Set(Object.values(map));
    const inThem = [...named].flatMap((name) => Object.keys(SHARDS[name]!));
    expect([...files.tensors.keys()].sort()).toEqual(inThem.sort());
    for (const [name, shard] of Object.entries(map)) {
      const { file: opened, entry } = files.tensors.get(name)!;
      expect(basename(opened.path)).toBe(shard);
      const target = new Float32Array(entry.shape[0]!);
      await opened.readElements(entry, 0, target);
      const first = name === 'model.y' ? 2 : 0;
      expect([...target]).toEqual(Array.from(target, (_, index) => first + index));
    }
  } finally {
    await files.close();
  }
  expect(openDescriptorCount(folder)).toBe(0);
}

const codes = ['CHECKPOINT_CORRUPT'];

describe('an index of shards', () => {
  it('is read or refused with mutated bytes', async () => {
    const valid = Buffer.from(JSON.stringify(INDEX));
    const counts = await fuzzReader({
      name: 'index bytes',
      share: 0.1,
      files: byteMutations.map((mutate) => mutate(valid)),
      read,
      codes,
    });
    expect(Math.min(counts.loaded, counts.refused)).toBeGreaterThan(0);
  });

  it('is read or refused with mutated fields', async () => {
    const counts = await fuzzReader({
      name: 'index fields',
      share: 0.1,
      files: jsonMutations.map((mutate) => Buffer.from(mutate(INDEX))),
      read,
      codes,
    });
    expect(Math.min(counts.loaded, counts.refused)).toBeGreaterThan(0);
  });
});
