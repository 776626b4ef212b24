// Goal: sums that follow a planner's decisions one by one are those of the decisions as they stand.
import fc from 'fast-check';
import { expect, it } from 'vitest';
import { TIERS, type Tier } from '../../core/types.js';
import type { BlockProfile } from '../../src/plan/block-profile.js';
import type { Decisions } from '../../src/plan/decisions.js';
import { DeviceNeed } from '../../src/plan/device-need.js';
import { layoutParameters } from '../../src/plan/parameter-layout.js';
import { PeakBytes, type PlanSizes } from '../../src/plan/peak-bytes.js';
import { useAccumulatorsOf, type MemoryPlanInput } from '../../src/plan/placement.js';
import { StateSizes } from '../../src/plan/state-sizes.js';
import { buildModel, randomModel } from '../engine/random-model.js';

const tier = fc.constantFrom(...TIERS);

/** A change, which picks its object by a number. */
const change = fc.oneof(
  fc.record({ kind: fc.constant('activation' as const), at: fc.nat(), tier }),
  fc.record({ kind: fc.constant('accumulator' as const), at: fc.nat(), tier }),
  fc.record({
    kind: fc.constant('home' as const),
    at: fc.nat(),
    state: fc.constantFrom('param' as const, 'grad' as const, 'optimizer' as const),
    tier,
  }),
  fc.record({
    kind: fc.constant('choose' as const),
    choices: fc.record(
      {
        headWave: fc.integer({ min: 1, max: 3 }),
        paramSlots: fc.integer({ min: 1, max: 4 }),
        activationSlots: fc.integer({ min: 2, max: 3 }),
        tileSlots: fc.integer({ min: 1, max: 2 }),
        tilesApart: fc.boolean(),
        spillLag: fc.constantFrom(0 as const, 1 as const),
        stagingCount: fc.integer({ min: 1, max: 4 }),
        spillStagingCount: fc.integer({ min: 1, max: 4 }),
        optimizerDepth: fc.constantFrom(1 as const, 2 as const),
      },
      { requiredKeys: [] },
    ),
  }),
);

/** Sizes that differ from block to block, so that a block left out of a sum shows. */
const profileOf = (kind: string, block: number): BlockProfile => ({
  outputShape: [block + 1, 1000],
  outputBytes: 4000 * (block + 1),
  rowBytes: kind === 'row' ? 900 : 0,
  fieldBytes: 64,
  widenedBytes: 128 * block,
  forwardBytes: 10_000 + 700 * block,
  reverseBytes: 20_000 - 500 * block,
  ...(kind === 'tiled' && {
    tiled: {
      preparedBytes: 500,
      carryBytes: 300,
      prepareBytes: 900,
      forwardTileBytes: 700,
      endBytes: 400,
      backwardTileBytes: 1100,
      prepareReverseBytes: 1500,
      tileBytes: 640,
      lossBytes: 80,
    },
  }),
});

const sizesAndStart = fc
  .record({
    model: randomModel,
    order: fc.constantFrom('vertical' as const, 'horizontal' as const),
    microBatchCount: fc.integer({ min: 1, max: 3 }),
    dtype: fc.constantFrom('float32' as const, 'bfloat16' as const),
    bf16Operands: fc.boolean(),
    first: tier,
  })
  .map(({ model, first, ...rest }): [PlanSizes, Decisions] => {
    const { blocks } = buildModel(model);
    const layout = layoutParameters(blocks, 4096);
    const input: MemoryPlanInput = {
      ...rest,
      blocks,
      layout,
      profiles: blocks.map(({ kind }, index) => profileOf(kind, index)),
      budgets: { device: 0, host: 0, nvme: 0 },
      offloadParam: 'auto',
      offloadOptimizer: 'auto',
      hostAddressableDevice: true,
      nvmePathCount: 1,
      fieldBytes: 64,
      rowGatherBytes: [3000],
      optimizerStagingBytes: (depth, states) => depth * 1000 + states.length * 10,
    };
    const accumulators = useAccumulatorsOf(blocks, layout, rest.order, rest.microBatchCount);
    const states = new StateSizes(layout, rest.dtype);
    const need = new DeviceNeed(input);
    const start: Decisions = {
      headWave: 1,
      paramSlots: 1,
      activationSlots: 2,
      tileSlots: 1,
      tilesApart: false,
      spillLag: 0,
      stagingCount: 2,
      spillStagingCount: 2,
      optimizerDepth: 1,
      homes: layout.groups.map(() => ({ param: first, grad: first, optimizer: first })),
      activationTiers: blocks.map((_, block) =>
        block === 0 ? [] : Array.from({ length: need.slotCount }, (): Tier => first),
      ),
      accumulatorTiers: accumulators.map((): Tier => first),
    };
    return [{ input, states, need, accumulators }, start];
  });

it('follow every change', () => {
  fc.assert(
    fc.property(
      sizesAndStart,
      fc.array(change, { minLength: 1, maxLength: 40 }),
      ([sizes, start], changes) => {
        const peaks = new PeakBytes(sizes, structuredClone(start));
        for (const one of changes) {
          const { activationTiers, accumulatorTiers, homes } = peaks.decisions;
          if (one.kind === 'choose') peaks.choose(one.choices);
          else if (one.kind === 'home') peaks.moveHome(one.at % homes.length, one.state, one.tier);
          else if (one.kind === 'activation') {
            const block = 1 + (one.at % (activationTiers.length - 1 || 1));
            const count = activationTiers[block]?.length ?? 0;
            if (count > 0) peaks.moveActivation(block, one.at % count, one.tier);
          } else if (accumulatorTiers.length > 0) {
            peaks.moveAccumulator(one.at % accumulatorTiers.length, one.tier);
          }
          const afresh = new PeakBytes(sizes, structuredClone(peaks.decisions));
          expect(peaks.bytes).toEqual(afresh.bytes);
          expect(peaks.nvmeStates).toEqual(afresh.nvmeStates);
        }
      },
    ),
    { numRuns: 150 },
  );
});
