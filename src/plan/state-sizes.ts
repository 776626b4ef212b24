/**
 * @file Bytes of each state of each group in memory and in files, worked out once: a memory plan
 * adds them up after every decision.
 */
import { alignUp } from '../../core/bytes.js';
import { IO_ALIGNMENT, type ComputeDtype, type StateName, type Tier } from '../../core/types.js';
import { layoutBytes } from '../../tiers/nvme/layout.js';
import { homeOf, stateType, statesOf, type GroupHomes } from './placement.js';
import type { ParameterGroup, ParameterLayout } from './parameter-layout.js';

/** States of one group that share a home. */
interface HomeSize {
  readonly home: keyof GroupHomes;
  /** A lease per state, rounded up to the alignment. */
  readonly memoryBytes: number;
  /** With headers and padding. */
  readonly fileBytes: number;
}

export class StateSizes {
  /** By group. */
  readonly #sizes: readonly (readonly HomeSize[])[];
  readonly #trainable: readonly ParameterGroup[];
  readonly #dtype: ComputeDtype;

  constructor({ groups }: Pick<ParameterLayout, 'groups'>, dtype: ComputeDtype) {
    const fileBytes = new Map<string, number>();
    this.#sizes = groups.map((group) => sizesOf(group, dtype, fileBytes));
    this.#trainable = groups.filter(({ trainable }) => trainable);
    this.#dtype = dtype;
  }

  /** Bytes of all states by the tier of their home. */
  bytesPerTier(homes: readonly Readonly<GroupHomes>[]): Record<Tier, number> {
    let device = 0;
    let host = 0;
    let nvme = 0;
    for (let group = 0; group < this.#sizes.length; group += 1) {
      const places = homes[group]!;
      for (const { home, memoryBytes, fileBytes } of this.#sizes[group]!) {
        const tier = places[home];
        if (tier === 'nvme') nvme += fileBytes;
        else if (tier === 'host') host += memoryBytes;
        else device += memoryBytes;
      }
    }
    return { device, host, nvme };
  }

  /** Bytes of a group's states with that home, in a tier; 0 where it has none of them. */
  bytesAt(group: number, home: keyof GroupHomes, tier: Tier): number {
    const size = this.#sizes[group]!.find((one) => one.home === home);
    if (size === undefined) return 0;
    return tier === 'nvme' ? size.fileBytes : size.memoryBytes;
  }

  /** States of which some trainable shard is on NVMe. */
  nvmeStates(homes: readonly Readonly<GroupHomes>[]): StateName[] {
    const [first] = this.#trainable;
    if (first === undefined) return [];
    // Trainable groups have the same states.
    return statesOf(first, this.#dtype)
      .filter((state) =>
        this.#trainable.some(({ index }) => homeOf(homes[index]!, state) === 'nvme'),
      )
      .sort();
  }
}

function sizesOf(
  group: ParameterGroup,
  dtype: ComputeDtype,
  known: Map<string, number>,
): HomeSize[] {
  const states = statesOf(group, dtype);
  const homes = [
    ['param', states.filter((state) => state === 'param')],
    ['grad', states.filter((state) => state === 'grad')],
    ['optimizer', states.filter((state) => state !== 'param' && state !== 'grad')],
  ] as const;
  return homes.flatMap(([home, some]) => {
    if (some.length === 0) return [];
    let memoryBytes = 0;
    let fileBytes = 0;
    for (const state of some) {
      const elementBytes = stateType(state, dtype) === 'float32' ? 4 : 2;
      memoryBytes += alignUp(group.length * elementBytes, IO_ALIGNMENT);
      fileBytes += shardsBytes(state, group.shards, dtype, known);
    }
    return [{ home, memoryBytes, fileBytes }];
  });
}

/** Bytes that the shards' state takes in a file; all but the last are of one length. */
function shardsBytes(
  state: StateName,
  shards: ParameterGroup['shards'],
  dtype: ComputeDtype,
  known: Map<string, number>,
): number {
  const [first] = shards;
  const last = shards.at(-1);
  if (first === undefined || last === undefined) return 0;
  const others = (shards.length - 1) * shardBytes(state, first.length, dtype, known);
  return others + shardBytes(state, last.length, dtype, known);
}

/** Bytes that a shard's state takes in a file. */
function shardBytes(
  state: StateName,
  elementCount: number,
  dtype: ComputeDtype,
  known: Map<string, number>,
): number {
  const elementType = stateType(state, dtype);
  const key = `${elementType}/${elementCount}`;
  let bytes = known.get(key);
  if (bytes === undefined) {
    const states = [{ shard: 0, state, elementCount, elementType }];
    bytes = layoutBytes({ states, scratch: [], fileCount: 1, slots: 1 });
    known.set(key, bytes);
  }
  return bytes;
}
