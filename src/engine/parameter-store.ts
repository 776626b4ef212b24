/**
 * @file All training state of a model at its home tiers, and the moves that compute needs.
 *
 * Owns the memory leases of states homed on host and device; states on NVMe belong to the volume.
 * In memory one lease holds a whole group's state and shards are views of it, so that a float32
 * parameter homed on the device becomes a tensor without a copy.
 */
import type { Tensor } from '@tensorflow/tfjs-core';
import { SpillwayError, assert } from '../../core/errors.js';
import {
  CHUNK_ELEMENTS,
  elementBytes,
  type ComputeDtype,
  type ShardId,
  type StateName,
} from '../../core/types.js';
import type { TensorUpload } from '../../tiers/device/device.js';
import type { MemoryLease } from '../../tiers/host/host-buffer.js';
import { kernels } from '../../tiers/native/binding.js';
import type { StateLocation } from '../../tiers/state-location.js';
import type { TierManager, WriteOptions } from '../../tiers/tier-manager.js';
import type { Model, ParamName, TensorSource } from '../model/block.js';
import { homeOf, stateType, statesOf, type MemoryPlan } from '../plan/memory-plan.js';
import {
  segmentsOf,
  type ParamAddress,
  type ParameterGroup,
  type ParameterLayout,
  type Shard,
} from '../plan/parameter-layout.js';

/** Part of an upload: elements of one parameter within its group. */
interface WantedParam {
  readonly address: ParamAddress;
  readonly upload: TensorUpload;
}

function key(shard: ShardId, state: StateName): string {
  return `${shard}/${state}`;
}

function asFloats(bytes: Uint8Array): Float32Array {
  return new Float32Array(bytes.buffer, bytes.byteOffset, bytes.byteLength / 4);
}

function asHalves(bytes: Uint8Array): Uint16Array {
  return new Uint16Array(bytes.buffer, bytes.byteOffset, bytes.byteLength / 2);
}

export class ParameterStore {
  readonly layout: ParameterLayout;
  readonly dtype: ComputeDtype;
  readonly #tiers: TierManager;
  readonly #plan: MemoryPlan;
  readonly #locations = new Map<string, StateLocation>();
  /** Leases by `group/state`. */
  readonly #leases = new Map<string, MemoryLease>();

  /** @throws HOST_OUT_OF_MEMORY, DEVICE_OUT_OF_MEMORY; nothing stays leased then */
  constructor(tiers: TierManager, layout: ParameterLayout, plan: MemoryPlan, dtype: ComputeDtype) {
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
   * Fills all states: parameters from their sources, moments and gradients with zeros. Every
   * region on NVMe is written whole, so that later writes meet allocated blocks.
   */
  async initialise(model: Model): Promise<void> {
    for (const group of this.layout.groups) {
      const sources = new Map<ParamName, TensorSource>();
      for (const { spec } of group.params) {
        const source = await model.source(spec);
        if (source.shape.join() !== spec.shape.join()) {
          throw new SpillwayError(
            'CHECKPOINT_MISMATCH',
            `the source of ${spec.name} has another shape`,
            {
              expected: spec.shape.map(String),
              actual: source.shape.map(String),
            },
          );
        }
        sources.set(spec.name, source);
      }
      for (const shard of group.shards) {
        for (let start = 0; start < shard.length; start += CHUNK_ELEMENTS) {
          const length = Math.min(CHUNK_ELEMENTS, shard.length - start);
          await this.#loadPiece(group, shard, start, length, sources);
        }
        await this.#zeroMoments(group, shard);
      }
    }
  }

  /**
   * The whole parameters `names` as float32 tensors on the device; each stored chunk is read once.
   * The caller disposes them.
   */
  async loadParams(names: readonly ParamName[]): Promise<Record<ParamName, Tensor>> {
    const { device } = this.#tiers;
    const tensors: Record<ParamName, Tensor> = {};
    const wanted = new Map<ParameterGroup, WantedParam[]>();
    try {
      for (const name of names) {
        const address = this.address(name);
        const aliased = this.#alias(address);
        if (aliased !== undefined) {
          tensors[name] = aliased;
          continue;
        }
        const upload = device.beginUpload(address.spec.shape, name);
        const group = this.group(address);
        wanted.set(group, [...(wanted.get(group) ?? []), { address, upload }]);
      }
      for (const [group, params] of wanted) await this.#uploadGroup(group, params);
    } catch (error) {
      for (const { upload } of [...wanted.values()].flat()) upload.abort();
      for (const tensor of Object.values(tensors)) tensor.dispose();
      throw error;
    }
    for (const { address, upload } of [...wanted.values()].flat()) {
      tensors[address.spec.name] = upload.finish();
    }
    return tensors;
  }

  /** Rows `firstRow … firstRow + rowCount` of a matrix as a tensor; the caller disposes it. */
  async loadRows(name: ParamName, firstRow: number, rowCount: number): Promise<Tensor> {
    const address = this.address(name);
    const columns = address.length / (address.spec.shape[0] ?? 1);
    const upload = this.#tiers.device.beginUpload([rowCount, columns], name);
    try {
      const start = address.offset + firstRow * columns;
      await this.#readRange(address, start, rowCount * columns, (offset, bytes, counted) => {
        if (counted) this.#tiers.countUpload(bytes.byteLength);
        return upload.write(offset, bytes, this.dtype);
      });
      return upload.finish();
    } catch (error) {
      upload.abort();
      throw error;
    }
  }

  /**
   * Rows `indices` of the table `name`, in that order, as an [n, C] tensor. Reads each stored chunk
   * that holds a wanted row once. The caller disposes the tensor.
   *
   * @throws TOKEN_OUT_OF_RANGE naming the first index outside the table
   */
  async gatherRows(name: ParamName, indices: Int32Array): Promise<Tensor> {
    const address = this.address(name);
    const rows = address.spec.shape[0] ?? 0;
    const columns = address.length / rows;
    for (const [position, index] of indices.entries()) {
      if (index < 0 || index >= rows) {
        throw new SpillwayError(
          'TOKEN_OUT_OF_RANGE',
          `row ${index} of ${name} does not exist; it has ${rows} rows`,
          { position, index, rows },
        );
      }
    }
    const upload = this.#tiers.device.beginUpload([indices.length, columns], name);
    try {
      const order = Array.from(indices.keys()).sort(
        (a, b) => (indices[a] ?? 0) - (indices[b] ?? 0) || a - b,
      );
      await this.#gather(address, columns, indices, order, upload);
      return upload.finish();
    } catch (error) {
      upload.abort();
      throw error;
    }
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
  ): Promise<void> {
    await this.writeGroupGradient(
      this.group(address),
      address.offset + start,
      count,
      mode,
      fill,
      onLeaves,
    );
  }

  /** The same for elements of a flattened group. */
  async writeGroupGradient(
    group: ParameterGroup,
    start: number,
    count: number,
    mode: 'replace' | 'add',
    fill: (offset: number, target: Float32Array<SharedArrayBuffer>) => Promise<void> | void,
    onLeaves: (shard: Shard, firstElement: number, values: Float32Array) => void,
  ): Promise<void> {
    for (const segment of segmentsOf(group, start, count)) {
      const options: WriteOptions = {
        mode,
        totalLength: segment.shard.length,
        onWritten: (firstElement, bytes) => onLeaves(segment.shard, firstElement, asFloats(bytes)),
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

  /** The float32 master values of a parameter. */
  async readMaster(name: ParamName): Promise<Float32Array> {
    const { length, spec } = this.address(name);
    const master = new Float32Array(length);
    if (this.dtype === 'float32') {
      await this.copyState(name, 'param', 0, master);
      return master;
    }
    const param = new Uint16Array(length);
    await this.copyState(name, 'param', 0, param);
    if (spec.trainable === false) {
      kernels().bf16ToF32(param, master);
    } else {
      const masterLo = new Uint16Array(length);
      await this.copyState(name, 'master_lo', 0, masterLo);
      kernels().joinMaster(param, masterLo, master);
    }
    return master;
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

  /** Loads elements `start …` of a shard through two staging buffers, splitting the master. */
  async #loadPiece(
    group: ParameterGroup,
    shard: Shard,
    start: number,
    length: number,
    sources: ReadonlyMap<ParamName, TensorSource>,
  ): Promise<void> {
    // The staging pool's own buffers would wait for themselves inside `write`, so the piece is
    // read into memory of its own; this happens only while the engine is created.
    const master = new Float32Array(length);
    const first = shard.start + start;
    for (const { spec, offset, length: paramLength } of group.params) {
      const from = Math.max(first, offset);
      const to = Math.min(first + length, offset + paramLength);
      if (from >= to) continue;
      const source = sources.get(spec.name);
      assert(source !== undefined, 'every parameter has a source');
      await source.read(from - offset, master.subarray(from - first, to - first));
    }
    if (this.dtype === 'float32') {
      await this.#writePiece(shard, 'param', start, new Uint8Array(master.buffer));
      return;
    }
    const param = new Uint16Array(length);
    const masterLo = new Uint16Array(length);
    if (group.trainable) {
      kernels().splitMaster(master, param, masterLo);
      await this.#writePiece(shard, 'master_lo', start, new Uint8Array(masterLo.buffer));
    } else {
      kernels().f32ToBf16(master, param);
    }
    await this.#writePiece(shard, 'param', start, new Uint8Array(param.buffer));
  }

  async #writePiece(
    shard: Shard,
    state: StateName,
    start: number,
    bytes: Uint8Array,
  ): Promise<void> {
    const type = stateType(state, this.dtype);
    const bytesPer = elementBytes(type);
    await this.#tiers.write(
      this.location(shard, state),
      type,
      start,
      bytes.byteLength / bytesPer,
      (offset, target) => {
        target.set(bytes.subarray(offset * bytesPer, offset * bytesPer + target.byteLength));
      },
    );
  }

  async #zeroMoments(group: ParameterGroup, shard: Shard): Promise<void> {
    for (const state of statesOf(group, this.dtype)) {
      if (state === 'param' || state === 'master_lo') continue;
      await this.#tiers.write(
        this.location(shard, state),
        'float32',
        0,
        shard.length,
        (_, target) => {
          target.fill(0);
        },
      );
    }
  }

  /** A tensor over the parameter's own bytes, where it is float32 and homed on the device. */
  #alias(address: ParamAddress): Tensor | undefined {
    const lease = this.#leases.get(`${address.group}/param`);
    if (
      lease === undefined ||
      this.dtype !== 'float32' ||
      this.#plan.homes[address.group]?.param !== 'device'
    ) {
      return undefined;
    }
    const bytes = lease.bytes.subarray(address.offset * 4, (address.offset + address.length) * 4);
    return this.#tiers.device.alias(bytes, address.spec.shape);
  }

  async #uploadGroup(group: ParameterGroup, params: readonly WantedParam[]): Promise<void> {
    const bytesPer = elementBytes(this.dtype);
    const from = Math.min(...params.map(({ address }) => address.offset));
    const to = Math.max(...params.map(({ address }) => address.offset + address.length));
    for (const segment of segmentsOf(group, from, to - from)) {
      const location = this.location(segment.shard, 'param');
      const counted = location.kind === 'nvme' || location.tier === 'host';
      const visit = async (offset: number, bytes: Uint8Array): Promise<void> => {
        const pieceFrom = from + segment.offset + offset;
        const pieceTo = pieceFrom + bytes.byteLength / bytesPer;
        for (const { address, upload } of params) {
          const first = Math.max(pieceFrom, address.offset);
          const last = Math.min(pieceTo, address.offset + address.length);
          if (first >= last) continue;
          const piece = bytes.subarray(
            (first - pieceFrom) * bytesPer,
            (last - pieceFrom) * bytesPer,
          );
          await upload.write(first - address.offset, piece, this.dtype);
          if (counted) this.#tiers.countUpload(piece.byteLength);
        }
      };
      await this.#tiers.read(location, this.dtype, segment.start, segment.length, visit);
    }
  }

  /** Streams stored parameter elements of a group range; `counted` tells whether they cross a link. */
  async #readRange(
    address: ParamAddress,
    start: number,
    count: number,
    visit: (offset: number, bytes: Uint8Array, counted: boolean) => Promise<void>,
  ): Promise<void> {
    for (const segment of segmentsOf(this.group(address), start, count)) {
      const location = this.location(segment.shard, 'param');
      const counted = location.kind === 'nvme' || location.tier === 'host';
      await this.#tiers.read(location, this.dtype, segment.start, segment.length, (offset, bytes) =>
        visit(segment.offset + offset, bytes, counted),
      );
    }
  }

  /** Copies the wanted rows, visiting positions in ascending row order. */
  async #gather(
    address: ParamAddress,
    columns: number,
    indices: Int32Array,
    order: readonly number[],
    upload: TensorUpload,
  ): Promise<void> {
    const bytesPer = elementBytes(this.dtype);
    const rowStart = (at: number): number => {
      const position = order[at];
      return address.offset + (position === undefined ? 0 : (indices[position] ?? 0)) * columns;
    };
    const group = this.group(address);
    let at = 0;
    while (at < order.length) {
      // Rows whose chunks touch one another are read in one run.
      let end = at + 1;
      const runStart = rowStart(at);
      let runEnd = runStart + columns;
      while (end < order.length && isNearby(group, runEnd, rowStart(end))) {
        runEnd = rowStart(end) + columns;
        end += 1;
      }
      const positions = order.slice(at, end);
      await this.#readRange(
        address,
        runStart,
        runEnd - runStart,
        async (offset, bytes, counted) => {
          const from = runStart + offset;
          const to = from + bytes.byteLength / bytesPer;
          for (const position of positions) {
            const row = address.offset + (indices[position] ?? 0) * columns;
            const first = Math.max(from, row);
            const last = Math.min(to, row + columns);
            if (first >= last) continue;
            const piece = bytes.subarray((first - from) * bytesPer, (last - from) * bytesPer);
            await upload.write(position * columns + first - row, piece, this.dtype);
            if (counted) this.#tiers.countUpload(piece.byteLength);
          }
        },
      );
      at = end;
    }
  }
}

/** Whether a row that starts at `start` shares a chunk with (or follows) elements before `end`. */
function isNearby(group: ParameterGroup, end: number, start: number): boolean {
  if (start <= end) return true;
  const shard = group.shards.findLast((candidate) => candidate.start < end);
  assert(shard !== undefined, 'the element lies in a shard');
  const within = (element: number): number => Math.floor((element - shard.start) / CHUNK_ELEMENTS);
  return start < shard.start + shard.length && within(start) === within(end - 1);
}
