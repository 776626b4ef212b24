// Goal: tensors are split into shards as huggingface_hub splits them.
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

import { describe, expect, it } from 'vitest';

import { splitShards } from '../../src/checkpoint/split-shards.js';
import { shardFileName, singleFileName } from '../../src/checkpoint/tensor-file-names.js';

interface RecordedSplit {
  readonly sizes: readonly number[];
  readonly limit: number;
  readonly files: Readonly<Record<string, readonly string[]>>;
}

/** Made by fixtures/sharding/make.py. */
const { cases } = JSON.parse(
  readFileSync(
    fileURLToPath(new URL('../../fixtures/sharding/cases.json', import.meta.url)),
    'utf8',
  ),
) as { cases: readonly RecordedSplit[] };

describe('splitShards', () => {
  it.each(cases)('splits $sizes at $limit as huggingface_hub does', ({ sizes, limit, files }) => {
    const shards = splitShards(
      sizes.map((bytes, index) => ({ name: `t${index}`, bytes })),
      limit,
    );
    const named = shards.map((names, index) => [
      shards.length === 1 ? singleFileName('model') : shardFileName('model', index, shards.length),
      names,
    ]);
    expect(Object.fromEntries(named)).toEqual(files);
  });

  it('makes one shard without a limit and none of nothing', () => {
    const sized = [1e15, 1e15].map((bytes, index) => ({ name: String(index), bytes }));
    expect(splitShards(sized, Infinity)).toEqual([['0', '1']]);
    expect(splitShards([], 5)).toEqual([]);
  });
});
