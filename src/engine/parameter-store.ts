/**
 * @file All training state of a model at its home tiers, and the moves that compute needs.
 *
 * Owns the memory leases of states homed on host and device; states on NVMe belong to the volume.
 * In memory one lease holds a whole group's state and shards are views of it, so that a float32
 * parameter homed on the device becomes a tensor without a copy.
 */
import { assert } from '../../core/errors.js';
import { elementBytes, type ComputeDtype, type ShardId, type StateName } from '../../core/types.js';
import type { MemoryLease } from '../../tiers/host/host-buffer.js';
import { kernels } from '../../tiers/native/binding.js';
import type { StateLocation } from '../../tiers/state-location.js';
import type { TierManager, Turns, WriteOptions } from '../../tiers/tier-manager.js';
import type { ParamName } from '../model/block.js';
import { homeOf, stateType, statesOf, type MemoryPlan } from '../plan/placement.js';
import {
  segmentsOf,
  type ParamAddress,
  type ParameterGroup,
  type ParameterLayout,
  type Shard,
} from '../plan/parameter-layout.js';

function key(shard: ShardId, state: StateName): string {
  return `${shard}/${state}`;
}

function asFloats(bytes: Uint8Array): Float32Array {
  return new Float32Array(bytes.buffer, bytes.byteOffset, bytes.byteLength / 4);
}

function asHalves(bytes: Uint8Array): Uint16Array {
  return new Uint16Array(bytes.buffer, bytes.byteOffset, bytes.byteLength / 2);
}

/** The part of a plan that places states: homes by group. */
type Homes = Pick<MemoryPlan, 'homes'>;

export class ParameterStore {
  readonly layout: ParameterLayout;
  readonly dtype: ComputeDtype;
  readonly #tiers: TierManager;
  readonly #plan: Homes;
  readonly #locations = new Map<string, StateLocation>();
  /** Leases by `group/state`. */
  readonly #leases = new Map<string, MemoryLease>();

  /** @throws HOST_OUT_OF_MEMORY, DEVICE_OUT_OF_MEMORY; nothing stays leased then */
  constructor(tiers: TierManager, layout: ParameterLayout, plan: Homes, dtype: ComputeDtype) {
    this.#tiers = tiers;
    this.layout = layout;
    this.#plan = plan;
    this.dtype = dtype;
    try {
      for (const group of layout.groups) {
        for (const state of statesOf(group, dtype)) this.#place(group, state);
      }
    } catch (error) {
      this.dispose();
      throw error;
    }
  }

  /** Where a state of a shard lives. */
  location(shard: Shard, state: StateName): StateLocation {
    const location = this.#locations.get(key(shard.id, state));
    assert(location !== undefined, 'every state of every shard has a place', { state });
    return location;
  }

  address(name: ParamName): ParamAddress {
    const address = this.layout.params.get(name);
    assert(address !== undefined, 'the parameter is known', { name });
    return address;
  }

  group(address: ParamAddress): ParameterGroup {
    const group = this.layout.groups[address.group];
    assert(group !== undefined, 'the group is known');
    return group;
  }

  /**
   * Writes (or adds, in float32) elements `start … start + count` of a parameter's gradient.
   *
   * @param fill is asked for elements `offset …` of that range, ascending
   * @param onLeaves see WriteOptions.onWritten, with the shard that was written
   */
  async writeGradient(
    address: ParamAddress,
    start: number,
    count: number,
    mode: 'replace' | 'add',
    fill: (offset: number, target: Float32Array<SharedArrayBuffer>) => Promise<void> | void,
    onLeaves: (shard: Shard, firstElement: number, values: Float32Array) => void,
    turns?: Turns,
  ): Promise<void> {
    const first = address.offset + start;
    await this.writeGroupGradient(this.group(address), first, count, mode, fill, onLeaves, turns);
  }

  /** The same for elements of a flattened group. */
  async writeGroupGradient(
    group: ParameterGroup,
    start: number,
    count: number,
    mode: 'replace' | 'add',
    fill: (offset: number, target: Float32Array<SharedArrayBuffer>) => Promise<void> | void,
    onLeaves: (shard: Shard, firstElement: number, values: Float32Array) => void,
    turns?: Turns,
  ): Promise<void> {
    for (const segment of segmentsOf(group, start, count)) {
      const options: WriteOptions = {
        mode,
        totalLength: segment.shard.length,
        onWritten: (firstElement, bytes) => onLeaves(segment.shard, firstElement, asFloats(bytes)),
        ...(turns === undefined ? {} : { turns }),
      };
      await this.#tiers.write(
        this.location(segment.shard, 'grad'),
        'float32',
        segment.start,
        segment.length,
        (offset, target) =>
          fill(
            segment.offset + offset,
            new Float32Array(target.buffer, target.byteOffset, target.byteLength / 4),
          ),
        options,
      );
    }
  }

  /** Streams the stored elements of one state of a parameter, ascending, in pieces. */
  async readState(
    name: ParamName,
    state: StateName,
    start: number,
    count: number,
    visit: (offset: number, bytes: Uint8Array) => Promise<void> | void,
  ): Promise<void> {
    const address = this.address(name);
    const type = stateType(state, this.dtype);
    const group = this.group(address);
    for (const segment of segmentsOf(group, address.offset + start, count)) {
      const location = this.location(segment.shard, state);
      await this.#tiers.read(location, type, segment.start, segment.length, (offset, bytes) =>
        visit(segment.offset + offset, bytes),
      );
    }
  }

  /** Reads the exact stored bits of a 16-bit or float32 state piece into `target`. */
  async copyState(
    name: ParamName,
    state: StateName,
    start: number,
    target: Float32Array | Uint16Array,
  ): Promise<void> {
    await this.readState(name, state, start, target.length, (offset, bytes) => {
      if (target instanceof Float32Array) target.set(asFloats(bytes), offset);
      else target.set(asHalves(bytes), offset);
    });
  }

  /** The float32 master values of a parameter, or its weights where there is no more. */
  async readMaster(name: ParamName): Promise<Float32Array> {
    const address = this.address(name);
    const { length } = address;
    const master = new Float32Array(length);
    if (this.dtype === 'float32') {
      await this.copyState(name, 'param', 0, master);
      return master;
    }
    const param = new Uint16Array(length);
    await this.copyState(name, 'param', 0, param);
    if (!statesOf(this.group(address), this.dtype).includes('master_lo')) {
      kernels().bf16ToF32(param, master);
    } else {
      const masterLo = new Uint16Array(length);
      await this.copyState(name, 'master_lo', 0, masterLo);
      kernels().joinMaster(param, masterLo, master);
    }
    return master;
  }

  /** The bytes of a whole group's parameters, where they are one lease on the device. */
  deviceBytes(group: ParameterGroup): Uint8Array<SharedArrayBuffer> | undefined {
    if (this.#plan.homes[group.index]?.param !== 'device') return undefined;
    return this.#leases.get(`${group.index}/param`)?.bytes;
  }

  /** Gives all leases back. Idempotent. */
  dispose(): void {
    for (const lease of this.#leases.values()) lease.dispose();
    this.#leases.clear();
    this.#locations.clear();
  }

  #place(group: ParameterGroup, state: StateName): void {
    const homes = this.#plan.homes[group.index];
    assert(homes !== undefined, 'every group has homes');
    const tier = homeOf(homes, state);
    const bytesPer = elementBytes(stateType(state, this.dtype));
    if (tier === 'nvme') {
      const { volume } = this.#tiers;
      assert(volume !== undefined, 'states on NVMe have a volume');
      for (const shard of group.shards) {
        this.#locations.set(key(shard.id, state), volume.location(shard.id, state));
      }
      return;
    }
    const arena = tier === 'host' ? this.#tiers.host : this.#tiers.device.arena;
    assert(arena !== undefined, 'only addressable devices hold states');
    const lease = arena.lease(group.length * bytesPer, `${state} of group ${group.index}`);
    this.#leases.set(`${group.index}/${state}`, lease);
    for (const shard of group.shards) {
      const bytes = lease.bytes.subarray(
        shard.start * bytesPer,
        (shard.start + shard.length) * bytesPer,
      );
      this.#locations.set(key(shard.id, state), { kind: 'memory', tier, bytes });
    }
  }
}
