// Goal: what fits is found, however little of it the files have room for.
import fc from 'fast-check';
import { expect, it } from 'vitest';
import { TIERS } from '../../core/types.js';
import { readModelDefinition } from '../../src/checkpoint/read-model-definition.js';
import { emptyBatch } from '../../src/data/example-batch.js';
import { planTraining, type PlanningOptions } from '../../src/engine/plan-training.js';
import type { MemoryPlan } from '../../src/plan/placement.js';
import { fixtureFolder } from '../engine/run-engine.js';

const models = await Promise.all(
  ['gpt2-tiny', 'llama-tiny'].map((name) => readModelDefinition(fixtureFolder(name))),
);
const AMPLE = 2 ** 30;

const options = fc.record({
  model: fc.constantFrom(...models),
  exampleBatch: fc
    .record({
      batchSize: fc.integer({ min: 1, max: 2 }),
      length: fc.integer({ min: 2, max: 32 }),
      packed: fc.boolean(),
    })
    .map(emptyBatch),
  gradientAccumulationSteps: fc.integer({ min: 1, max: 4 }),
  microBatchOrder: fc.constantFrom('auto', 'vertical', 'horizontal'),
  dtype: fc.constantFrom('float32', 'bfloat16'),
  subGroupSize: fc.constantFrom(4096, 16_777_216),
});

async function planWith(
  more: Omit<PlanningOptions, 'deviceMemory' | 'hostMemory' | 'nvmeMemory'>,
  [deviceMemory, hostMemory, nvmeMemory]: readonly [number, number, number],
): Promise<MemoryPlan> {
  const { plan } = await planTraining({ ...more, deviceMemory, hostMemory, nvmeMemory });
  const budgets = { device: deviceMemory, host: hostMemory, nvme: nvmeMemory };
  for (const tier of TIERS) expect(plan.peakBytes[tier]).toBeLessThanOrEqual(budgets[tier]);
  return plan;
}

it('host memory or the device takes what the files have no room for', async () => {
  await fc.assert(
    fc.asyncProperty(
      options,
      fc.double({ min: 0, max: 1, noNaN: true }),
      fc.boolean(),
      async (more, share, onDevice) => {
        const withFiles = { ...more, nvmePath: '/nvme' };
        const { minimumBytes: least } = await planWith(withFiles, [AMPLE, AMPLE, AMPLE]);
        const files = Math.floor(share * least.nvme) + 1;
        await planWith(withFiles, [AMPLE, onDevice ? least.host : AMPLE, files]);
      },
    ),
    { numRuns: 30 },
  );
});

it('files without any room are no worse than no files', async () => {
  await fc.assert(
    fc.asyncProperty(options, async (more) => {
      const { minimumBytes: least } = await planWith(more, [AMPLE, AMPLE, AMPLE]);
      const without = await planWith(more, [least.device, least.host, 1]);
      const full = await planWith({ ...more, nvmePath: '/nvme' }, [least.device, least.host, 1]);
      expect(full.homes).toEqual(without.homes);
      expect(full.peakBytes).toEqual(without.peakBytes);
    }),
    { numRuns: 15 },
  );
});

it('a forced home stays where it is, and files too small for it are refused', async () => {
  const [model] = models;
  const base = {
    model: model!,
    exampleBatch: emptyBatch({ batchSize: 1, length: 16, packed: false }),
    nvmePath: '/nvme',
    offloadOptimizer: 'nvme',
  } as const;
  const ample = await planWith(base, [AMPLE, AMPLE, AMPLE]);
  const { peakBytes } = ample;
  const exact = await planWith(base, [AMPLE, AMPLE, peakBytes.nvme]);
  expect(exact.homes.every(({ optimizer }) => optimizer === 'nvme')).toBe(true);
  await expect(planWith(base, [AMPLE, AMPLE, peakBytes.nvme - 1])).rejects.toMatchObject({
    code: 'BUDGET_TOO_SMALL',
    message: expect.stringMatching(/^nvme_memory .* or less with more host_memory/) as string,
  });
});
