/**
 * @file What given decisions store on NVMe.
 */
import { SpillwayError } from '../../core/errors.js';
import type { LayoutRequest } from '../../tiers/nvme/layout.js';
import type { Decisions } from './decisions.js';
import {
  homeOf,
  scratchName,
  stateType,
  statesOf,
  type MemoryPlanInput,
  type UseAccumulator,
} from './placement.js';

/**
 * The states, activation checkpoints and accumulators that are on NVMe.
 *
 * @param slotBytes bytes of one activation slot of a block
 */
export function nvmeRequest(
  { layout, dtype, nvmePathCount }: MemoryPlanInput,
  { homes, activationTiers, accumulatorTiers }: Decisions,
  accumulators: readonly UseAccumulator[],
  slotBytes: (block: number) => number,
): LayoutRequest {
  const states = layout.groups.flatMap((group) =>
    statesOf(group, dtype)
      .filter((state) => {
        const places = homes[group.index];
        if (places === undefined) {
          throw new SpillwayError('INTERNAL', `group ${group.index} has no homes`);
        }
        return homeOf(places, state) === 'nvme';
      })
      .flatMap((state) =>
        group.shards.map((shard) => ({
          shard: shard.id,
          state,
          elementCount: shard.length,
          elementType: stateType(state, dtype),
        })),
      ),
  );
  const activations = activationTiers.flatMap((tiers, block) =>
    tiers.flatMap((tier, microBatch) => {
      if (tier !== 'nvme') return [];
      const name = scratchName.activation(block, microBatch);
      return [{ name, elementCount: slotBytes(block) / 4 }];
    }),
  );
  const sums = accumulators.flatMap(({ param, block }, index) => {
    if (accumulatorTiers[index] !== 'nvme') return [];
    const name = scratchName.accumulator(param.spec.name, block);
    return [{ name, elementCount: param.length }];
  });
  return {
    states,
    scratch: [...activations, ...sums].map((region) => ({
      ...region,
      elementType: 'float32' as const,
    })),
    fileCount: Math.max(1, nvmePathCount),
    slots: 1,
  };
}
