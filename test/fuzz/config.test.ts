// Goal: any mutation of a config.json is refused by name or gives the model that its sizes say.
import { existsSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import { silentLogger } from '../../core/logger.js';
import { readConfigJson } from '../../src/checkpoint/hugging-face-folder.js';
import { modelFromConfig } from '../../src/model/model-from-config.js';
import { temporaryFolder } from '../checkpoint/temporary-folder.js';
import { fuzzReader } from './fuzz-reader.js';
import { byteMutations } from './mutate-bytes.js';
import { jsonMutations } from './mutate-json.js';

const fixtures = fileURLToPath(new URL('../../fixtures/', import.meta.url));
/** One config.json of every fixture: all families, rope types and spellings that we have. */
const VALID = readdirSync(fixtures)
  .map((name) => join(fixtures, name, 'config.json'))
  .filter((path) => existsSync(path))
  .map((path) => readFileSync(path));

const path = join(temporaryFolder('memory'), 'config.json');

async function read(file: Buffer): Promise<void> {
  writeFileSync(path, file);
  const config = await readConfigJson(path);
  expect(config).toEqual(JSON.parse(file.toString('utf8')));
  const { blocks, vocabSize, tied } = modelFromConfig(config, {
    strict: false,
    logger: silentLogger,
  });
  const number = (name: string, other: string): unknown => config[name] ?? config[other];
  expect(vocabSize).toBe(config['vocab_size']);
  expect(blocks.length - 2).toBe(number('num_hidden_layers', 'n_layer'));
  const width = number('hidden_size', 'n_embd');
  const shapes = blocks.flatMap((block) => block.owns.map(({ shape }) => shape));
  const tables = shapes.filter(([rows]) => rows === vocabSize);
  expect(tables.filter(([, columns]) => columns === width).length).toBeGreaterThanOrEqual(
    tied ? 1 : 2,
  );
  for (const shape of shapes) {
    expect(shape.every((size) => Number.isSafeInteger(size) && size > 0)).toBe(true);
    expect(Number.isSafeInteger(shape.reduce((a, b) => a * b, 1))).toBe(true);
  }
}

const codes = ['MODEL_CONFIG_INVALID', 'MODEL_UNSUPPORTED'];
const valid = fc.constantFrom(...VALID);

describe('config.json', () => {
  it('is read or refused with mutated bytes', async () => {
    const counts = await fuzzReader({
      name: 'config bytes',
      share: 0.08,
      files: fc.tuple(valid, byteMutations).map(([file, mutate]) => mutate(file)),
      read,
      codes,
    });
    expect(Math.min(counts.loaded, counts.refused)).toBeGreaterThan(0);
  });

  it('is read or refused with mutated fields', async () => {
    const counts = await fuzzReader({
      name: 'config fields',
      share: 0.12,
      files: fc
        .tuple(valid, jsonMutations)
        .map(([file, mutate]) => Buffer.from(mutate(JSON.parse(file.toString('utf8'))))),
      read,
      codes,
    });
    expect(Math.min(counts.loaded, counts.refused)).toBeGreaterThan(0);
  });
});
