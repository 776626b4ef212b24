// Goal: a sequence continued token by token from kept keys and values has the logits of the whole
// sequence, in every family.
import * as tf from '@tensorflow/tfjs-core';
import type { Tensor } from '@tensorflow/tfjs-core';
import { beforeAll, describe, expect, it } from 'vitest';
import type { Block, BlockAux, Params } from '../../src/model/block.js';
import { languageModelBatch } from '../../src/model/language-model-batch.js';
import { BACKENDS, useBackend } from './backends.js';
import { chainLogits } from './block-chain.js';
import { FIXTURES, loadFixture, relativeError, weightTensors } from './fixture-model.js';

/** float32 of sums in another order, on tfjs's own kernels. */
const TOLERANCE = 1e-5;

/** Logits of every token, [T, V], computed in parts of the given lengths. */
function continuedLogits(
  blocks: readonly Block[],
  params: Params,
  ids: readonly number[],
  parts: readonly number[],
): Tensor {
  const kept = blocks.map((): Tensor[] => []);
  const logits: Tensor[] = [];
  let first = 0;
  for (const count of parts) {
    const place = { first, limit: ids.length };
    const tokens = ids.slice(first, first + count);
    const data = Int32Array.from(tokens);
    const fields = { input_ids: { data, shape: [1, count] } };
    const aux: BlockAux = {
      fields,
      tensors: {},
      lossScale: 1,
      seed: 0,
      step: 0,
      microBatch: 0,
      block: 0,
    };
    let x: Tensor[] = [];
    for (const [index, block] of blocks.slice(0, -1).entries()) {
      if (block.kind === 'row') {
        const rows = block.gathers.map((gather) =>
          tf.gather(params[gather.param]!, tf.tensor1d(gather.indices(fields, first), 'int32')),
        );
        x = block.apply(rows, aux);
      } else if (block.kind === 'dense') {
        const { output, added } = block.extend!(params, x, kept[index]!, place);
        const before = kept[index]!;
        kept[index] = added.map((rows, at) =>
          first === 0 ? rows : tf.concat([before[at]!, rows]),
        );
        x = [output];
      }
    }
    logits.push(headLogits(blocks, params, x, aux));
    first += count;
  }
  return tf.concat(logits, 0);
}

function headLogits(
  blocks: readonly Block[],
  params: Params,
  x: readonly Tensor[],
  aux: BlockAux,
): Tensor {
  const head = blocks.at(-1)!;
  if (head.kind !== 'tiled') throw new Error('the last block is tiled');
  const matrix = params[head.tiledParam]!;
  const [rows, columns] = matrix.shape as [number, number];
  const prepared = head.prepare(params, x, aux);
  const tiles: Tensor[] = [];
  for (let firstRow = 0; firstRow < rows; firstRow += head.tileRows) {
    const rowCount = Math.min(head.tileRows, rows - firstRow);
    const weight = tf.slice(matrix, [firstRow, 0], [rowCount, columns]);
    tiles.push(head.logits!({ weight, index: tiles.length, firstRow, rowCount }, prepared));
  }
  return tf.concat(tiles, 1);
}

describe.each(BACKENDS)('continuing a sequence on %s', (backend) => {
  useBackend(backend);

  describe.each(FIXTURES)('%s', (name) => {
    let fixture: Awaited<ReturnType<typeof loadFixture>>;
    let params: Params;
    let ids: readonly number[];
    beforeAll(async () => {
      fixture = await loadFixture(name);
      params = weightTensors(fixture);
      ids = fixture.reference.input_ids[0]!;
      return () => tf.dispose(Object.values(params));
    });

    it.each([
      ['at once', (length: number) => [length]],
      ['token by token', (length: number) => Array<number>(length).fill(1)],
      ['in parts', (length: number) => [3, 1, length - 6, 2]],
    ])('%s gives the logits of the whole sequence', (_, cut) => {
      const { blocks } = fixture.model;
      const [actual, expected] = tf.tidy(() => {
        const batchSize = 1;
        const batch = { inputIds: ids, labels: ids, batchSize, length: ids.length };
        const whole = chainLogits(blocks, params, languageModelBatch(batch));
        const parts = continuedLogits(blocks, params, ids, cut(ids.length));
        return [parts.dataSync(), whole.dataSync()];
      });
      // The native kernels sum in one order, whatever the shape.
      if (backend === 'native') expect(actual).toEqual(expected);
      else expect(relativeError(actual, expected)).toBeLessThan(TOLERANCE);
    });

    it('leaves nothing but what it returns', () => {
      const before = tf.memory().numTensors;
      tf.tidy(() => void continuedLogits(fixture.model.blocks, params, ids, [2, 1]));
      expect(tf.memory().numTensors).toBe(before);
    });
  });
});
