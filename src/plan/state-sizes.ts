/**
 * @file Bytes of each state of each group in memory and in files, worked out once: a memory plan
 * adds them up after every decision.
 */
import { alignUp } from '../../core/bytes.js';
import { IO_ALIGNMENT, type ComputeDtype, type StateName, type Tier } from '../../core/types.js';
import { layoutBytes } from '../../tiers/nvme/layout.js';
import { homeOf, stateType, statesOf, type GroupHomes } from './placement.js';
import type { ParameterGroup, ParameterLayout } from './parameter-layout.js';

interface StateSize {
  readonly state: StateName;
  /** One lease holds a group's state; leases are rounded up to the alignment. */
  readonly memoryBytes: number;
  /** With headers and padding. */
  readonly fileBytes: number;
}

export class StateSizes {
  readonly #sizes: readonly (readonly StateSize[])[];
  readonly #isTrainable: readonly boolean[];

  constructor({ groups }: Pick<ParameterLayout, 'groups'>, dtype: ComputeDtype) {
    this.#sizes = groups.map((group) =>
      statesOf(group, dtype).map((state) => sizeOf(group, state, dtype)),
    );
    this.#isTrainable = groups.map(({ trainable }) => trainable);
  }

  /** Bytes of all states by the tier of their home. */
  bytesPerTier(homes: readonly Readonly<GroupHomes>[]): Record<Tier, number> {
    const sums = { device: 0, host: 0, nvme: 0 };
    for (const [group, sizes] of this.#sizes.entries()) {
      for (const { state, memoryBytes, fileBytes } of sizes) {
        const tier = homeOf(homes[group]!, state);
        sums[tier] += tier === 'nvme' ? fileBytes : memoryBytes;
      }
    }
    return sums;
  }

  /** States of which some trainable shard is on NVMe. */
  nvmeStates(homes: readonly Readonly<GroupHomes>[]): StateName[] {
    const names = new Set<StateName>();
    for (const [group, sizes] of this.#sizes.entries()) {
      if (!this.#isTrainable[group]) continue;
      for (const { state } of sizes) {
        if (homeOf(homes[group]!, state) === 'nvme') names.add(state);
      }
    }
    return [...names].sort();
  }
}

function sizeOf(group: ParameterGroup, state: StateName, dtype: ComputeDtype): StateSize {
  const elementType = stateType(state, dtype);
  const elementBytes = elementType === 'float32' ? 4 : 2;
  const states = group.shards.map(({ id, length }) => ({
    shard: id,
    state,
    elementCount: length,
    elementType,
  }));
  return {
    state,
    memoryBytes: alignUp(group.length * elementBytes, IO_ALIGNMENT),
    fileBytes: layoutBytes({ states, scratch: [], fileCount: 1, slots: 1 }),
  };
}
