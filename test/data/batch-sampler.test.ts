// Goal: each epoch is a permutation cut into batches as Hugging Face's Trainer cuts it; a position resumes.
import fc from 'fast-check';
import { expect, it } from 'vitest';
import { BatchSampler } from '../../src/data/batch-sampler.js';
import type { AccumulatedBatch, SamplerOptions } from '../../src/data/batch-sampler.js';

const options = fc.record({
  rowCount: fc.integer({ min: 1, max: 40 }),
  batchSize: fc.integer({ min: 1, max: 5 }),
  accumulationSteps: fc.integer({ min: 1, max: 4 }),
  seed: fc.integer({ min: 0, max: 2 ** 32 - 1 }),
  epochs: fc.constantFrom(0.4, 1, 2, 2.5),
  maxSteps: fc.constantFrom(-1, 1, 7, 30),
});

function drain(sampler: BatchSampler): AccumulatedBatch[] {
  const batches: AccumulatedBatch[] = [];
  for (let batch = sampler.next(); batch !== undefined; batch = sampler.next()) batches.push(batch);
  return batches;
}

it('visits each row once per whole epoch, in full batches but for the last ones', () => {
  fc.assert(
    fc.property(options, (given) => {
      const sampler = new BatchSampler({ ...given, epochs: 2, maxSteps: -1 });
      const batches = drain(sampler);
      expect(sampler.epochsDrawn).toBe(2);
      for (const epoch of [0, 1]) {
        const drawn = batches.filter((batch) => batch.position.epoch === epoch);
        expect(drawn.map((batch) => batch.position.index)).toEqual([...drawn.keys()]);
        const rows = drawn.flatMap((batch) => batch.microBatches.flatMap((rows) => [...rows]));
        expect(rows.toSorted((a, b) => a - b)).toEqual([...Array(given.rowCount).keys()]);
        const micro = drawn.flatMap((batch) => batch.microBatches);
        for (const rows of micro.slice(0, -1)) expect(rows.length).toBe(given.batchSize);
        expect(micro.at(-1)!.length).toBeGreaterThan(0);
        for (const batch of drawn.slice(0, -1)) {
          expect(batch.microBatches.length).toBe(given.accumulationSteps);
        }
        expect(drawn.at(-1)!.microBatches.length).toBeGreaterThan(0);
      }
    }),
  );
});

it('takes as many steps as the Trainer', () => {
  fc.assert(
    fc.property(options, (given) => {
      const sampler = new BatchSampler(given);
      // transformers' Trainer: len(dataloader) // G + int(len(dataloader) % G > 0)
      const loaderLength = Math.ceil(given.rowCount / given.batchSize);
      const whole = Math.floor(loaderLength / given.accumulationSteps);
      const perEpoch = whole + (loaderLength % given.accumulationSteps > 0 ? 1 : 0);
      expect(sampler.stepsPerEpoch).toBe(perEpoch);
      const total = given.maxSteps > 0 ? given.maxSteps : Math.ceil(given.epochs * perEpoch);
      expect(sampler.totalSteps).toBe(total);
      expect(drain(sampler)).toHaveLength(total);
    }),
  );
});

it('continues from any position as if it had never stopped', () => {
  fc.assert(
    fc.property(options, fc.nat(30), (given, steps) => {
      const batches = drain(new BatchSampler(given));
      const first = new BatchSampler(given);
      for (let step = 0; step < Math.min(steps, batches.length); step += 1) first.next();
      const second = new BatchSampler(given);
      second.seek(JSON.parse(JSON.stringify(first.position)) as typeof first.position);
      expect(second.stepsDrawn).toBe(Math.min(steps, batches.length));
      expect(drain(second)).toEqual(batches.slice(steps));
    }),
  );
});

const TEN_ROWS: SamplerOptions = {
  rowCount: 10,
  batchSize: 2,
  accumulationSteps: 2,
  seed: 42,
  epochs: 2,
  maxSteps: -1,
};

it('has one order on every machine', () => {
  const orders = drain(new BatchSampler(TEN_ROWS)).map((batch) =>
    batch.microBatches.map((rows) => [...rows]),
  );
  // Recorded; a change would break resuming runs of earlier versions.
  expect(orders).toEqual(RECORDED);
});

it('differs between epochs and seeds', () => {
  const order = (seed: number, epoch: number) => {
    const sampler = new BatchSampler({ ...TEN_ROWS, seed });
    sampler.seek({ epoch, index: 0 });
    return [...sampler.next()!.microBatches[0]!, ...sampler.next()!.microBatches[1]!].join();
  };
  expect(new Set([order(42, 0), order(42, 1), order(43, 0)]).size).toBe(3);
});

it('refuses a position that is none', () => {
  const sampler = new BatchSampler(TEN_ROWS);
  for (const [epoch, index] of [
    [-1, 0],
    [0, 3],
    [0.5, 0],
    [0, Number.NaN],
  ] as const) {
    expect(() => {
      sampler.seek({ epoch, index });
    }).toThrow(RangeError);
  }
});

const RECORDED = [
  [
    [5, 6],
    [2, 1],
  ],
  [
    [3, 9],
    [7, 4],
  ],
  [[8, 0]],
  [
    [5, 7],
    [4, 9],
  ],
  [
    [2, 6],
    [0, 1],
  ],
  [[3, 8]],
];
