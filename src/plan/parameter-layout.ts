/**
 * @file How parameters become groups and shards: the addresses of all training state.
 *
 * Parameters of one block with the same trainable flag and weight decay form a group; a group's
 * parameters are laid end to end in the block's order ("flattened") and cut into shards of at most
 * `subGroupSize` elements. A shard may hold parts of several parameters, a parameter may span
 * shards. Shard ids ascend over the model and depend on neither tiers nor budgets. Pure functions.
 */
import { SpillwayError, assert } from '../../core/errors.js';
import { NORM_LEAF_ELEMENTS, type ShardId } from '../../core/types.js';
import type { Block, ParamName, ParamSpec } from '../model/block.js';
import { checkChain } from '../model/check-chain.js';

/** One contiguous range of a group, at most `subGroupSize` elements. */
export interface Shard {
  readonly id: ShardId;
  readonly group: number;
  /** First element within the group; a multiple of 4096. */
  readonly start: number;
  readonly length: number;
}

/** A parameter's address: elements `offset … offset + length` of group `group`. */
export interface ParamAddress {
  readonly spec: ParamSpec;
  readonly group: number;
  readonly offset: number;
  readonly length: number;
}

/** What a model is laid out for: training keeps states beside the weights, inference none. */
export type Purpose = 'train' | 'inference';

/** Parameters of one block that are stored and updated alike. */
export interface ParameterGroup {
  readonly index: number;
  /** The owning block. */
  readonly block: number;
  readonly decay: boolean;
  readonly trainable: boolean;
  readonly purpose: Purpose;
  readonly params: readonly ParamAddress[];
  readonly length: number;
  readonly shards: readonly Shard[];
}

/** The addresses of a model's parameters. */
export interface ParameterLayout {
  readonly groups: readonly ParameterGroup[];
  readonly shards: readonly Shard[];
  /** Groups owned by each block. */
  readonly blockGroups: readonly (readonly ParameterGroup[])[];
  readonly params: ReadonlyMap<ParamName, ParamAddress>;
  /** Blocks that use a parameter, ascending. */
  readonly users: ReadonlyMap<ParamName, readonly number[]>;
  /** Parameters in all, and those that train. */
  readonly parameterCount: number;
  readonly trainableCount: number;
}

/** Weight, gradient and two moments, four bytes each; bfloat16 splits the weight in two halves. */
const STATE_BYTES_PER_PARAMETER = 16;

/** Bytes of weights, gradients and AdamW states of everything that trains. */
export function stateBytesOf(layout: Pick<ParameterLayout, 'trainableCount'>): number {
  return layout.trainableCount * STATE_BYTES_PER_PARAMETER;
}

/** Part of a shard that belongs to a wanted range. */
export interface ShardSegment {
  readonly shard: Shard;
  /** First element within the shard. */
  readonly start: number;
  readonly length: number;
  /** Elements from the start of the wanted range. */
  readonly offset: number;
}

function elementCount(spec: ParamSpec): number {
  return spec.shape.reduce((product, size) => product * size, 1);
}

function cutShards(group: number, length: number, subGroupSize: number, firstId: number): Shard[] {
  const shards: Shard[] = [];
  for (let start = 0; start < length; start += subGroupSize) {
    const shardLength = Math.min(subGroupSize, length - start);
    shards.push({ id: firstId + shards.length, group, start, length: shardLength });
  }
  return shards;
}

/**
 * Lays out the parameters of `blocks`.
 *
 * @param subGroupSize most elements per shard, a multiple of 4096
 * @throws BLOCK_INVALID when the chain contradicts itself; CONFIG_INVALID for the shard size
 */
export function layoutParameters(
  blocks: readonly Block[],
  subGroupSize: number,
  purpose: Purpose = 'train',
): ParameterLayout {
  if (
    !Number.isInteger(subGroupSize) ||
    subGroupSize < 1 ||
    subGroupSize % NORM_LEAF_ELEMENTS !== 0
  ) {
    throw new SpillwayError(
      'CONFIG_INVALID',
      `sub_group_size is ${subGroupSize}; give a positive multiple of ${NORM_LEAF_ELEMENTS} elements`,
    );
  }
  checkChain(blocks);
  const groups: ParameterGroup[] = [];
  const shards: Shard[] = [];
  const params = new Map<ParamName, ParamAddress>();
  const users = new Map<ParamName, number[]>();
  for (const [blockIndex, block] of blocks.entries()) {
    const classes = new Map<string, ParamSpec[]>();
    for (const key of ['true,true', 'true,false', 'false,true', 'false,false'])
      classes.set(key, []);
    for (const spec of block.owns) {
      classes.get(`${spec.trainable ?? true},${spec.decay}`)?.push(spec);
    }
    for (const [key, specs] of classes) {
      if (specs.length === 0) continue;
      const index = groups.length;
      let length = 0;
      const addresses = specs.map((spec) => {
        const address = { spec, group: index, offset: length, length: elementCount(spec) };
        length += address.length;
        params.set(spec.name, address);
        return address;
      });
      const groupShards = cutShards(index, length, subGroupSize, shards.length);
      shards.push(...groupShards);
      const [trainable, decay] = key.split(',');
      groups.push({
        index,
        block: blockIndex,
        decay: decay === 'true',
        trainable: trainable === 'true',
        purpose,
        params: addresses,
        length,
        shards: groupShards,
      });
    }
    for (const name of block.uses) users.set(name, [...(users.get(name) ?? []), blockIndex]);
  }
  const count = (some: readonly ParameterGroup[]): number =>
    some.reduce((sum, group) => sum + group.length, 0);
  return {
    groups,
    shards,
    blockGroups: blocks.map((_, index) => groups.filter((group) => group.block === index)),
    params,
    users,
    parameterCount: count(groups),
    trainableCount: count(groups.filter((group) => group.trainable)),
  };
}

/** The shards' parts that make up elements `start … start + length` of `group`, in order. */
export function segmentsOf(group: ParameterGroup, start: number, length: number): ShardSegment[] {
  assert(start >= 0 && start + length <= group.length, 'range lies inside its group', {
    start,
    length,
    groupLength: group.length,
  });
  const segments: ShardSegment[] = [];
  const end = start + length;
  // All shards but the last are of one length.
  const first = Math.floor(start / (group.shards[0]?.length ?? 1));
  for (let index = first; index < group.shards.length; index += 1) {
    const shard = group.shards[index]!;
    if (shard.start >= end) break;
    const from = Math.max(start, shard.start);
    const to = Math.min(end, shard.start + shard.length);
    segments.push({ shard, start: from - shard.start, length: to - from, offset: from - start });
  }
  return segments;
}
