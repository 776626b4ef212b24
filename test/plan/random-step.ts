/**
 * @file Random inputs of `buildStep`: models, homes, regions, orders, numbers of micro-batches.
 * Sizes of activations are numbers of their own; a plan does not depend on what blocks compute.
 */
import fc from 'fast-check';
import type { Tier } from '../../core/types.js';
import type { MicroBatchShape, StepInput } from '../../src/plan/step-input.js';
import { packParams } from '../../src/plan/packed-params.js';
import { layoutParameters } from '../../src/plan/parameter-layout.js';
import { useAccumulatorsOf } from '../../src/plan/placement.js';
import type { RegionPlan } from '../../src/plan/step-plan.js';
import { buildModel, randomModel } from '../engine/random-model.js';

const TIERS: readonly Tier[] = ['device', 'host', 'nvme'];

const drafts = fc.record({
  model: randomModel,
  order: fc.constantFrom('vertical', 'horizontal'),
  microBatchCount: fc.integer({ min: 1, max: 4 }),
  homes: fc.array(
    fc.record({
      param: fc.constantFrom(...TIERS),
      grad: fc.constantFrom(...TIERS),
      optimizer: fc.constantFrom(...TIERS),
    }),
    { minLength: 1, maxLength: 6 },
  ),
  activationTiers: fc.array(fc.constantFrom(...TIERS), { minLength: 1, maxLength: 11 }),
  accumulatorTier: fc.constantFrom('host', 'nvme'),
  headWave: fc.integer({ min: 1, max: 4 }),
  paramSlots: fc.integer({ min: 1, max: 4 }),
  moreActivationSlots: fc.integer({ min: 0, max: 2 }),
  tileSlots: fc.integer({ min: 1, max: 3 }),
  tilesApart: fc.boolean(),
  spillLag: fc.constantFrom(0, 1),
  clips: fc.boolean(),
  dtype: fc.constantFrom('float32', 'bfloat16'),
  bf16Operands: fc.boolean(),
});

export const randomStep: fc.Arbitrary<StepInput> = drafts.map((draft): StepInput => {
  const { order, microBatchCount, dtype, bf16Operands, spillLag, clips } = draft;
  const { blocks } = buildModel(draft.model);
  const layout = layoutParameters(blocks, 4096);
  const homes = layout.groups.map(({ index }) => draft.homes[index % draft.homes.length]!);
  const packing = { layout, homes, dtype, bf16Operands };
  const slotCount = order === 'vertical' ? microBatchCount : 1;
  const tierOf = (at: number): Tier => draft.activationTiers[at % draft.activationTiers.length]!;
  const slotLengths = blocks.map((_, index) => (index === 0 ? 0 : 17 + 5 * index));
  const shape: MicroBatchShape = {
    activationLengths: slotLengths,
    gatherRows: blocks[0]?.kind === 'row' ? blocks[0].gathers.map((_, index) => 3 + index) : [],
    lossLength: 7,
    fieldBytes: { input_ids: 28, x: 40 },
  };
  return {
    ...packing,
    blocks,
    plan: {
      order,
      homes,
      activationTiers: blocks.map((_, block) =>
        block === 0 ? [] : Array.from({ length: slotCount }, (_, m) => tierOf(3 * block + m)),
      ),
      headWave: Math.min(draft.headWave, slotCount),
      useAccumulators: useAccumulatorsOf(blocks, layout, order, microBatchCount).map((use) => ({
        ...use,
        tier: draft.accumulatorTier,
      })),
    },
    region: regionOf(blocks, packing, { ...draft, slotCount, slotLengths }),
    spillLag,
    microBatches: Array.from({ length: microBatchCount }, () => shape),
    slotLengths,
    clips,
  };
});

/** Parameters first, activations last; tiles over the parameters, or between the two. */
function regionOf(
  blocks: StepInput['blocks'],
  packing: Parameters<typeof packParams>[1],
  wanted: {
    readonly paramSlots: number;
    readonly moreActivationSlots: number;
    readonly tileSlots: number;
    readonly tilesApart: boolean;
    readonly slotCount: number;
    readonly slotLengths: readonly number[];
  },
): RegionPlan {
  const sizes = blocks.map((block) => packParams(block, packing).byteLength);
  const dense = sizes.filter((_, index) => blocks[index]!.kind === 'dense');
  const paramSlotBytes = Math.max(0, ...dense);
  const paramSlots = paramSlotBytes === 0 ? 0 : wanted.paramSlots;
  const last = blocks.at(-1)!;
  const matrix = last.kind === 'tiled' ? packing.layout.params.get(last.tiledParam)! : undefined;
  const columns = matrix?.spec.shape[1] ?? 0;
  const tileSlotBytes = last.kind === 'tiled' ? last.tileRows * columns * 4 : 0;
  const headBytes = last.kind === 'tiled' ? sizes.at(-1)! : 0;
  const headOffset = wanted.tilesApart ? paramSlots * paramSlotBytes : 0;
  const tileOffset = headOffset + headBytes;
  const tilesEnd = tileOffset + wanted.tileSlots * tileSlotBytes;
  const activationOffset = Math.max(paramSlots * paramSlotBytes, tilesEnd);
  const activationSlots = (wanted.slotCount > 1 ? 2 : 1) + wanted.moreActivationSlots;
  const activationSlotBytes = 4096 + 4 * Math.max(...wanted.slotLengths);
  return {
    paramSlots,
    paramSlotBytes,
    activationSlots,
    activationSlotBytes,
    activationOffset,
    tileSlots: wanted.tileSlots,
    tileSlotBytes,
    tileOffset,
    headOffset,
    byteLength: activationOffset + activationSlots * activationSlotBytes,
  };
}
