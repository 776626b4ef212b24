// Goal: a plan made without an engine is the engine's, and its smallest budgets are the smallest.
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { readModelDefinition } from '../../src/checkpoint/read-model-definition.js';
import { loadPretrained } from '../../src/checkpoint/load-pretrained.js';
import { emptyBatch } from '../../src/data/example-batch.js';
import { Engine } from '../../src/engine/engine.js';
import { planTraining, type PlanningOptions } from '../../src/engine/plan-training.js';
import { homeShares } from '../../src/plan/home-shares.js';
import type { Tier } from '../../core/types.js';
import { TIERS } from '../../core/types.js';
import { DEVICES, fixtureFolder, withFolder } from './run-engine.js';

type Budgets = Readonly<Record<Tier, number>>;

const budgetOptions = ({ device, host, nvme }: Budgets) => ({
  deviceMemory: device,
  hostMemory: host,
  nvmeMemory: nvme,
});

const AMPLE = { deviceMemory: '1GiB', hostMemory: '1GiB', nvmeMemory: '1GiB' };

describe.each(DEVICES)('on %s', (device) => {
  it('the plan is that of the engine, whose ledgers stay below its peaks', async () => {
    const batch = emptyBatch({ batchSize: 2, length: 24, packed: true });
    await withFolder(async (nvmePath) => {
      const model = await loadPretrained(fixtureFolder('llama-tiny'));
      const options = {
        device,
        exampleBatch: batch,
        deviceMemory: '700KiB',
        hostMemory: '5MiB',
        nvmeMemory: '64MiB',
        nvmePath,
        gradientAccumulationSteps: 3,
      };
      const definition = await readModelDefinition(fixtureFolder('llama-tiny'));
      const { plan, budgets } = await planTraining({ ...options, model: definition });
      const engine = await Engine.create({ ...options, model });
      try {
        expect(engine.plan).toEqual(plan);
        expect(engine.budgetBytes).toEqual(budgets);
        await (
          await engine.step([batch, batch, batch])
        ).committed;
        await engine.evaluate([batch]);
        for (const tier of TIERS) {
          expect(engine.peakBytes[tier]).toBeLessThanOrEqual(plan.peakBytes[tier]);
          expect(plan.peakBytes[tier]).toBeLessThanOrEqual(budgets[tier]);
        }
        // The bounds are no guesses: most of what they allow is used. (What a step uses exactly is
        // simulated, and compared in run-engine.ts.)
        expect(engine.peakBytes.device).toBeGreaterThan(plan.peakBytes.device * 0.75);
        expect(engine.peakBytes.host).toBe(plan.peakBytes.host);
        expect(engine.peakBytes.nvme).toBe(plan.peakBytes.nvme);
      } finally {
        await engine.close();
        await model.close();
      }
    });
  });
});

it('an engine at the smallest budgets trains', async () => {
  const batch = emptyBatch({ batchSize: 1, length: 16, packed: false });
  await withFolder(async (nvmePath) => {
    const model = await loadPretrained(fixtureFolder('gpt2-tiny'));
    const options = { model, exampleBatch: batch, nvmePath, gradientAccumulationSteps: 4 };
    const { plan } = await planTraining({ ...options, ...AMPLE });
    const engine = await Engine.create({ ...options, ...budgetOptions(plan.minimumBytes) });
    try {
      const { loss, committed } = await engine.step([batch, batch, batch, batch]);
      await committed;
      expect(loss).toBeGreaterThan(0);
      for (const tier of TIERS) {
        expect(engine.peakBytes[tier]).toBeLessThanOrEqual(plan.minimumBytes[tier]);
      }
    } finally {
      await engine.close();
      await model.close();
    }
  });
});

it('whatever the options, the smallest budgets fit and a byte less in a tier does not', async () => {
  const models = await Promise.all(
    ['gpt2-tiny', 'llama-tiny'].map((name) => readModelDefinition(fixtureFolder(name))),
  );
  const refused = async (options: PlanningOptions): Promise<boolean> =>
    planTraining(options).then(
      () => false,
      (error: unknown) => {
        expect(error).toMatchObject({ code: 'BUDGET_TOO_SMALL' });
        return true;
      },
    );
  await fc.assert(
    fc.asyncProperty(
      fc.record({
        model: fc.constantFrom(...models),
        shape: fc.record({
          batchSize: fc.integer({ min: 1, max: 3 }),
          length: fc.integer({ min: 2, max: 32 }),
          packed: fc.boolean(),
        }),
        gradientAccumulationSteps: fc.integer({ min: 1, max: 5 }),
        microBatchOrder: fc.constantFrom('auto', 'vertical', 'horizontal'),
        dtype: fc.constantFrom('float32', 'bfloat16'),
        nvmePath: fc.constantFrom([], ['/nvme'], ['/nvme', '/other']),
        offloadParam: fc.constantFrom('auto', 'cpu'),
        offloadOptimizer: fc.constantFrom('auto', 'cpu'),
        subGroupSize: fc.constantFrom(4096, 16_777_216),
      }),
      async ({ shape, ...rest }) => {
        const options = { ...rest, exampleBatch: emptyBatch(shape) };
        const { plan } = await planTraining({ ...options, ...AMPLE });
        const least = plan.minimumBytes;
        const atLeast = await planTraining({ ...options, ...budgetOptions(least) });
        expect(atLeast.plan.minimumBytes).toEqual(least);
        for (const tier of TIERS) {
          if (least[tier] === 0) continue;
          const less = { ...least, [tier]: least[tier] - 1 };
          expect(await refused({ ...options, ...budgetOptions(less) })).toBe(true);
        }
      },
    ),
    { numRuns: 60 },
  );
});

it('shares of homes are counted by elements', () => {
  const homes = [
    { param: 'device', grad: 'host', optimizer: 'nvme' },
    { param: 'host', grad: 'host', optimizer: 'nvme' },
  ] as const;
  expect(homeShares(homes, [300, 100])).toEqual({
    param: { device: 0.75, host: 0.25, nvme: 0 },
    grad: { device: 0, host: 1, nvme: 0 },
    optimizer: { device: 0, host: 0, nvme: 1 },
  });
});
