// Goal: any mutation of a safetensors file is refused by name or read as a reference reads it.
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import { isCoded } from '../../core/errors.js';
import { parseHeader, parseHeaderLength } from '../../src/checkpoint/safetensors-header.js';
import { SafetensorsFile } from '../../src/checkpoint/safetensors-reader.js';
import { fileBytes } from '../checkpoint/safetensors-file.js';
import { temporaryFolder } from '../checkpoint/temporary-folder.js';
import { fuzzReader } from './fuzz-reader.js';
import { byteMutations } from './mutate-bytes.js';
import { jsonMutations } from './mutate-json.js';

const HEADER = {
  __metadata__: { format: 'pt', note: 'ä' },
  'model.a': { dtype: 'F32', shape: [2, 3], data_offsets: [0, 24] },
  'model.b': { dtype: 'BF16', shape: [4], data_offsets: [24, 32] },
  'model.c': { dtype: 'F16', shape: [1, 1, 2], data_offsets: [32, 36] },
  'model.d': { dtype: 'I8', shape: [3], data_offsets: [36, 39] },
  'model.e': { dtype: 'U16', shape: [0, 7], data_offsets: [39, 39] },
  'model.f': { dtype: 'F32', shape: [], data_offsets: [39, 43] },
};
const DATA = Uint8Array.from({ length: 43 }, (_, index) => (index * 7) % 61);
const VALID = fileBytes(JSON.stringify(HEADER), DATA);

const folder = temporaryFolder('memory');
mkdirSync(join(folder, 'f'));
const path = join(folder, 'f', 'model.safetensors');

interface Info {
  dtype: string;
  shape: number[];
  data_offsets: [number, number];
}

/** What JSON.parse says of a file that our reader has accepted. */
function reference(file: Buffer): { fields: Map<string, Info>; data: Buffer } {
  const headerBytes = Number(file.readBigUInt64LE(0));
  const header = JSON.parse(file.toString('utf8', 8, 8 + headerBytes)) as object;
  const fields = new Map(Object.entries(header) as [string, Info][]);
  fields.delete('__metadata__');
  return { fields, data: file.subarray(8 + headerBytes) };
}

async function readFileOf(file: Buffer): Promise<void> {
  writeFileSync(path, file);
  const opened = await SafetensorsFile.open(path);
  try {
    const { fields, data } = reference(file);
    expect(opened.entries.map(({ name }) => name).sort()).toEqual([...fields.keys()].sort());
    let covered = 0;
    for (const entry of opened.entries) {
      const { dtype, shape, data_offsets: offsets } = fields.get(entry.name)!;
      expect([entry.dtype, entry.shape]).toEqual([dtype, shape]);
      covered += offsets[1] - offsets[0];
      const length = shape.reduce((a, b) => a * b, 1);
      if (dtype === 'F32') {
        const target = new Float32Array(length);
        await opened.readElements(entry, 0, target);
        expect(Buffer.from(target.buffer)).toEqual(data.subarray(...offsets));
      } else if (dtype === 'U16' || dtype === 'BF16' || dtype === 'F16') {
        const target = new Uint16Array(length);
        await opened.readBits(entry, 0, target);
        expect(Buffer.from(target.buffer)).toEqual(data.subarray(...offsets));
      }
    }
    expect(covered).toBe(data.length);
  } finally {
    await opened.close();
  }
}

const structural = jsonMutations.map((mutate) => Buffer.from(fileBytes(mutate(HEADER), DATA)));
const codes = ['CHECKPOINT_CORRUPT'];

describe('safetensors', () => {
  it('reads or refuses mutated bytes', async () => {
    const counts = await fuzzReader({
      name: 'safetensors bytes',
      share: 0.1,
      files: byteMutations.map((mutate) => mutate(VALID)),
      read: readFileOf,
      codes,
    });
    expect(Math.min(counts.loaded, counts.refused)).toBeGreaterThan(0);
  });

  it('reads or refuses mutated headers', async () => {
    const counts = await fuzzReader({
      name: 'safetensors header',
      share: 0.1,
      files: structural,
      read: readFileOf,
      codes,
    });
    expect(Math.min(counts.loaded, counts.refused)).toBeGreaterThan(0);
  });

  it('allocates nothing for what a small file claims', async () => {
    const claims = fc.constantFrom(2 ** 31, 2 ** 40, 2 ** 52, Number.MAX_SAFE_INTEGER);
    const files = fc.record({ size: claims, length: fc.constantFrom(0n, 99_999_999n, 2n ** 63n) });
    const counts = await fuzzReader({
      name: 'safetensors claims',
      share: 0.01,
      files: files.map(({ size, length }) => {
        const info = { dtype: 'F32', shape: [size], data_offsets: [0, size * 4] };
        const json = JSON.stringify({ x: info });
        return Buffer.from(fileBytes(json, DATA, length === 0n ? undefined : length));
      }),
      read: (file) => {
        const bytes = parseHeaderLength(file.subarray(0, 8), file.length, path);
        parseHeader(file.subarray(8, 8 + bytes), file.length, path);
      },
      codes,
    });
    expect(counts.loaded).toBe(0);
  });

  const size = 4_000_000;
  const described = (index: number): string =>
    `"model.layers.${index}.weight":{"dtype":"F32","shape":[0,4096],"data_offsets":[0,0]}`;
  it.each([
    ['nesting', `{"a":${'['.repeat(size / 2)}${']'.repeat(size / 2)}}`, 0.5],
    ['lists', `{"a":[${'[],'.repeat(size / 3)}[]]}`, 0.5],
    ['objects', `{"__metadata__":{"a":[${'{"":0},'.repeat(size / 7)}0]}}`, 2],
    ['equal keys', `{${'"":1,'.repeat(size / 5)}"a":1}`, 0.5],
    ['tensors', `{${Array.from({ length: 50_000 }, (_, index) => described(index)).join(',')}}`, 4],
  ])('takes memory within 4 times a header of many %s', (_, text, times) => {
    setFlagsFromString('--expose-gc');
    const collect = runInNewContext('gc') as () => void;
    const json = Buffer.from(text);
    const heap = (): number => process.memoryUsage().heapUsed + process.memoryUsage().external;
    collect();
    const before = heap();
    let result: unknown;
    try {
      result = parseHeader(json, json.length + 8, path);
    } catch (error) {
      result = error;
    }
    // A refusal's garbage counts; of a load what it keeps.
    if (!isCoded(result)) collect();
    expect(heap() - before).toBeLessThan(times * json.length);
    expect(isCoded(result)).toBe(times < 4);
  });
});
