// Goal: documents packed into a row have the losses and gradients that they have alone, and none
// sees another.
import * as tf from '@tensorflow/tfjs-core';
import { describe, expect, it } from 'vitest';
import type { MicroBatch } from '../../src/model/block.js';
import { languageModelBatch } from '../../src/model/language-model-batch.js';
import { bitsOf } from '../device/tfjs-setup.js';
import { BACKENDS, useBackend } from './backends.js';
import { runChain, type ChainResult } from './block-chain.js';
import { loadFixture, relativeError, weightTensors, type FixtureModel } from './fixture-model.js';

const TOLERANCE = 1e-5;

/** Rows of documents; each document is its token ids. */
type Rows = readonly (readonly (readonly number[])[])[];

/** Ids below this are in every fixture's vocabulary. */
const VOCABULARY = 60;

/** Token ids that differ from document to document. */
function documentOf(length: number, salt: number): number[] {
  return Array.from({ length }, (_, t) => (t * t * 7 + t * 13 + salt * 31) % VOCABULARY);
}

/** Two rows of 21 tokens: documents of 9, 1, 7 and 4 tokens, and of 14 and 7. */
const ROWS: Rows = [
  [documentOf(9, 1), documentOf(1, 2), documentOf(7, 3), documentOf(4, 4)],
  [documentOf(14, 5), documentOf(7, 6)],
];

function pack(rows: Rows): MicroBatch {
  const tokens = rows.flatMap((documents) => documents.flat());
  return languageModelBatch({
    inputIds: tokens,
    labels: tokens,
    batchSize: rows.length,
    length: rows[0]!.flat().length,
    documents: rows.flatMap((documents) => documents.flatMap((ids, index) => ids.map(() => index))),
    positionIds: rows.flatMap((documents) => documents.flatMap((ids) => ids.map((_, t) => t))),
  });
}

function run(fixture: FixtureModel, batch: MicroBatch, lossScale: number): ChainResult {
  const params = weightTensors(fixture);
  const result = runChain(fixture.model.blocks, params, batch, lossScale);
  tf.dispose(params);
  return result;
}

/** The losses of each document's tokens; its last one has none. */
function lossesByDocument({ losses }: ChainResult, rows: Rows): Float32Array[] {
  let at = 0;
  return rows.flat().map((ids) => losses.slice(at, (at += ids.length)));
}

const CASES = BACKENDS.flatMap((backend) =>
  // The window of qwen3-bias-tiny is longer than each document and shorter than a row.
  ['gpt2-tiny', 'llama-tiny', 'llama-tiny-untied', 'qwen3-bias-tiny'].map(
    (name) => [name, backend] as const,
  ),
);

describe.each(CASES)('packed rows of %s on %s', (name, backend) => {
  useBackend(backend);

  it('have the losses and gradients of their documents alone', async () => {
    const fixture = await loadFixture(name);
    const batch = pack(ROWS);
    const scale = 1 / batch.weight;
    const packed = run(fixture, batch, scale);
    const expected = new Map<string, Float64Array>();
    for (const [index, ids] of ROWS.flat().entries()) {
      const one = { inputIds: ids, labels: ids, batchSize: 1, length: ids.length };
      const alone = run(fixture, languageModelBatch(one), scale);
      const losses = lossesByDocument(packed, ROWS)[index]!;
      expect(losses.at(-1)).toBe(0);
      for (const [t, loss] of losses.slice(0, -1).entries()) {
        expect(Math.abs(loss / alone.losses[t]! - 1), `token ${t}`).toBeLessThan(TOLERANCE);
      }
      for (const [param, values] of alone.gradients) {
        const sum = expected.get(param) ?? new Float64Array(values.length);
        expected.set(
          param,
          sum.map((total, i) => total + values[i]!),
        );
      }
    }
    for (const [param, gradient] of packed.gradients) {
      expect(relativeError(gradient, expected.get(param)!), param).toBeLessThan(TOLERANCE);
    }
  });

  it('do not move a bit of a loss when another document changes', async () => {
    const fixture = await loadFixture(name);
    const before = lossesByDocument(run(fixture, pack(ROWS), 1), ROWS);
    for (const changed of before.keys()) {
      let index = -1;
      const rows = ROWS.map((documents) =>
        documents.map((ids) => {
          index += 1;
          return index === changed ? ids.map((id) => (id + 1) % VOCABULARY) : ids;
        }),
      );
      const after = lossesByDocument(run(fixture, pack(rows), 1), rows);
      for (const [document, losses] of after.entries()) {
        const same = bitsOf(losses).every((bits, t) => bits === bitsOf(before[document]!)[t]);
        // A document of one token has no loss that could move.
        expect(same, `document ${document} of change ${changed}`).toBe(
          document !== changed || losses.length === 1,
        );
      }
    }
  });

  it.runIf(name.endsWith('untied'))('send no gradient into another document', async () => {
    const fixture = await loadFixture(name);
    const batch = pack(ROWS);
    const { data, shape } = batch.fields['labels']!;
    const labels = data.map((label, at) => (at < 9 ? label : -100)) as Int32Array;
    const fields = { ...batch.fields, labels: { data: labels, shape } };
    const { gradients } = run(fixture, { ...batch, fields }, 1);
    // The head is not tied, so that a token's row moves only where attention reaches the token.
    const table = fixture.model.blocks[0]!.owns[0]!;
    const width = table.shape[1]!;
    const gradient = gradients.get(table.name)!;
    const moved = new Set<number>();
    for (const [at, value] of gradient.entries()) {
      if (value !== 0) moved.add(Math.floor(at / width));
    }
    // The last token predicts nothing.
    expect([...moved].sort()).toEqual([...new Set(ROWS[0]![0]!.slice(0, -1))].sort());
  });

  it('must place every token within its row', async () => {
    const fixture = await loadFixture(name);
    for (const place of [-1, 21]) {
      const batch = pack(ROWS);
      const { data, shape } = batch.fields['position_ids']!;
      const wrong = data.map((value, at) => (at === 3 ? place : value)) as Int32Array;
      const fields = { ...batch.fields, position_ids: { data: wrong, shape } };
      expect(() => run(fixture, { ...batch, fields }, 1)).toThrow(
        expect.objectContaining({ code: 'DATA_INVALID' }),
      );
    }
  });
});
