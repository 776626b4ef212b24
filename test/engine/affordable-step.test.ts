// Goal: what is measured of a model is as near to its run as time allows, and rows are shortened last.
import { expect, it } from 'vitest';
import { readModelDefinition } from '../../src/checkpoint/read-model-definition.js';
import { emptyBatch } from '../../src/data/example-batch.js';
import { affordableStep } from '../../src/engine/calibrate/affordable-step.js';
import { fixtureFolder } from './run-engine.js';

const LENGTH = 16;
/** Multiply-adds per second. */
const RATE = 1e6;

const model = await readModelDefinition(fixtureFolder('gpt2-tiny'));
const request = {
  options: { model, device: 'cpu' },
  length: LENGTH,
  batchOf: (length: number) => emptyBatch({ batchSize: 1, length, packed: false }),
};

async function within(seconds: number) {
  const { options, step, workOf } = await affordableStep(request, RATE, seconds);
  const computes = step.operations.filter(({ lane }) => lane === 'compute');
  const multiplyAdds = computes.reduce(
    (sum, { action }) => sum + workOf(action as Parameters<typeof workOf>[0]).multiplyAdds,
    0,
  );
  return {
    blocks: options.model.blocks.length,
    length: options.exampleBatch.fields['input_ids']?.shape[1],
    seconds: multiplyAdds / RATE,
  };
}

it('takes fewer blocks in fewer rounds, and only then shorter rows', async () => {
  const best = await within(Infinity);
  expect(best).toMatchObject({ blocks: model.blocks.length, length: LENGTH });
  const oneEach = await within(best.seconds * 4);
  expect(oneEach.length).toBe(LENGTH);
  expect(oneEach.blocks).toBeLessThan(best.blocks);
  // A round, and half as much to spare.
  expect(await within(oneEach.seconds * 1.51)).toEqual(oneEach);
  const shorter = await within(oneEach.seconds * 1.49);
  expect(shorter.length).toBe(LENGTH / 2);
  expect(await within(0)).toMatchObject({ blocks: oneEach.blocks, length: 1 });
});
