/**
 * @file Brings parameters from their home tiers to the device's region: whole, by row ranges, by rows.
 *
 * Reads each stored chunk once per call, in pieces; counts the bytes that cross the upload link
 * (what is homed on the device does not).
 */
import type { Tensor } from '@tensorflow/tfjs-core';
import { SpillwayError, assert } from '../../core/errors.js';
import { CHUNK_ELEMENTS, elementBytes } from '../../core/types.js';
import type { DeviceRegion, TensorUpload } from '../../tiers/device/device.js';
import type { TierManager, Turns } from '../../tiers/tier-manager.js';
import type { ParamName } from '../model/block.js';
import type { PackedParams } from '../plan/packed-params.js';
import { segmentsOf, type ParamAddress, type ParameterGroup } from '../plan/parameter-layout.js';
import type { RowRange } from './compute-parts.js';
import type { ParameterStore } from './parameter-store.js';
import { TableUpdates } from './table-updates.js';

/** Gathered elements that are uploaded together: with what reading them takes, a staging buffer. */
const ROW_PIECE_ELEMENTS = CHUNK_ELEMENTS / 4;

/** Where a parameter's elements go, from its first one on: a tensor, or a place in a region. */
type Target = Pick<TensorUpload, 'write'>;

/** Part of an upload: elements of one parameter within its group. */
interface WantedParam {
  readonly address: ParamAddress;
  readonly upload: Target;
}

export class ParameterLoader {
  readonly #tiers: TierManager;
  readonly #store: ParameterStore;
  readonly #tables: TableUpdates;

  /** @param tables default: those of weights that nothing updates */
  constructor(
    tiers: TierManager,
    store: ParameterStore,
    tables: TableUpdates = new TableUpdates(store, new Set()),
  ) {
    this.#tiers = tiers;
    this.#store = store;
    this.#tables = tables;
  }

  /** Fills a block's slot of a region, which starts at `byteOffset`, with its whole parameters. */
  async fetchParams(
    { params }: PackedParams,
    region: DeviceRegion,
    byteOffset: number,
    turns: Turns,
  ): Promise<void> {
    const wanted = new Map<ParameterGroup, WantedParam[]>();
    for (const { address, byteOffset: start, kept } of params) {
      const group = this.#store.group(address);
      const upload = this.#regionTarget(group, region, byteOffset + start, kept, turns);
      wanted.set(group, [...(wanted.get(group) ?? []), { address, upload }]);
    }
    for (const [group, some] of wanted) await this.#uploadGroup(group, some, turns);
  }

  /** Puts elements `start … start + count` of a parameter at `byteOffset` of a region. */
  async fetchRange(
    name: ParamName,
    start: number,
    count: number,
    region: DeviceRegion,
    byteOffset: number,
    turns: Turns,
  ): Promise<void> {
    const address = this.#store.address(name);
    const group = this.#store.group(address);
    const target = this.#regionTarget(group, region, byteOffset, 'float32', turns);
    const visit = async (offset: number, bytes: Uint8Array, counted: boolean): Promise<void> => {
      await target.write(offset, bytes, this.#store.dtype);
      if (counted) this.#tiers.countUpload(bytes.byteLength);
    };
    await this.#readRange(address, address.offset + start, count, visit, turns);
  }

  /**
   * Puts rows `indices` of a table, in that order, at `byteOffset` of a region.
   *
   * @param options `isSparse`: of a table on NVMe only the chunks that hold a wanted row are read, each
   *   once; otherwise the whole of it, so that what a step moves does not depend on its tokens
   * @throws TOKEN_OUT_OF_RANGE naming the first index outside the table
   */
  async fetchRows(
    name: ParamName,
    indices: Int32Array,
    region: DeviceRegion,
    byteOffset: number,
    { turns, isSparse = false }: { turns: Turns; isSparse?: boolean | undefined },
  ): Promise<void> {
    const address = this.#store.address(name);
    const columns = this.#checkRows(address, indices);
    const group = this.#store.group(address);
    const target = this.#regionTarget(group, region, byteOffset, 'float32', turns);
    if (this.#isInMemory(address)) return this.#copyRows(address, columns, indices, target);
    const order = sortedPositions(indices);
    if (isSparse) return this.#gather(address, columns, indices, order, target, turns);
    const bytesPer = elementBytes(this.#store.dtype);
    let at = 0;
    const visit = async (offset: number, bytes: Uint8Array, counted: boolean): Promise<void> => {
      const end = offset + bytes.byteLength / bytesPer;
      // Rows ascend; one that ends beyond this piece comes again with the next.
      for (let next = at; next < order.length; next += 1) {
        const position = order[next]!;
        const row = indices[position]! * columns;
        if (row >= end) break;
        const first = Math.max(offset, row);
        const last = Math.min(end, row + columns);
        if (first < last) {
          const piece = bytes.subarray((first - offset) * bytesPer, (last - offset) * bytesPer);
          await target.write(position * columns + first - row, piece, this.#store.dtype);
          if (counted) this.#tiers.countUpload(piece.byteLength);
        }
        if (row + columns <= end) at = next + 1;
      }
    };
    await this.#readRange(address, address.offset, address.length, visit, turns);
  }

  #isInMemory(address: ParamAddress): boolean {
    const { shards } = this.#store.group(address);
    return shards.every((shard) => this.#store.location(shard, 'param').kind === 'memory');
  }

  /** Rows of a table in memory, with the update that is due: collected, and uploaded together. */
  async #copyRows(
    address: ParamAddress,
    columns: number,
    indices: Int32Array,
    target: Target,
  ): Promise<void> {
    const { dtype } = this.#store;
    const bytesPer = elementBytes(dtype);
    const isCounted = this.#store.deviceBytes(this.#store.group(address)) === undefined;
    const total = indices.length * columns;
    for (let from = 0; from < total; from += ROW_PIECE_ELEMENTS) {
      const to = Math.min(total, from + ROW_PIECE_ELEMENTS);
      const loan = await this.#tiers.staging.acquire(1);
      try {
        const [buffer] = loan.buffers;
        const piece = buffer!.subarray(0, (to - from) * bytesPer);
        const scratch = buffer!.subarray(ROW_PIECE_ELEMENTS * bytesPer);
        for (let at = from; at < to;) {
          const position = Math.floor(at / columns);
          const end = Math.min(to, (position + 1) * columns);
          const start = indices[position]! * columns + at - position * columns;
          const part = piece.subarray((at - from) * bytesPer, (end - from) * bytesPer);
          await this.#tables.read(address, start, part, scratch);
          at = end;
        }
        await target.write(from, piece, dtype);
        if (isCounted) this.#tiers.countUpload(piece.byteLength);
      } finally {
        loan.release();
      }
    }
  }

  /** A new tensor over a parameter, or rows of a matrix, that is float32 and homed on the device. */
  alias(address: ParamAddress, rows?: RowRange): Tensor {
    const { dtype } = this.#store;
    const bytes = this.#store.deviceBytes(this.#store.group(address));
    assert(bytes !== undefined && dtype === 'float32', 'the parameter is homed on the device');
    const { spec, length, offset } = address;
    const columns = length / (spec.shape[0] ?? 1);
    const shape = rows === undefined ? spec.shape : [rows.count, columns];
    const start = offset + (rows?.first ?? 0) * columns;
    const end = rows === undefined ? offset + length : start + rows.count * columns;
    return this.#tiers.device.alias(bytes.subarray(start * 4, end * 4), shape);
  }

  /** A place in a region for a parameter of `group`; what is homed on the device crosses no link. */
  #regionTarget(
    group: ParameterGroup,
    region: DeviceRegion,
    byteOffset: number,
    kept: 'float32' | 'bfloat16',
    turns: Turns,
  ): Target {
    const bytesPer = elementBytes(kept);
    const isOnDevice = this.#store.deviceBytes(group) !== undefined;
    return {
      write: (offset, source, type) => {
        const write = () => region.write(byteOffset + offset * bytesPer, source, type, kept);
        return isOnDevice ? write() : turns.take('upload', source.byteLength, write);
      },
    };
  }

  /** Elements per row of a table. @throws TOKEN_OUT_OF_RANGE naming the first index outside it */
  #checkRows({ spec, length }: ParamAddress, indices: Int32Array): number {
    const rows = spec.shape[0] ?? 0;
    const position = indices.findIndex((index) => index < 0 || index >= rows);
    if (position >= 0) {
      const index = indices[position] ?? 0;
      throw new SpillwayError(
        'TOKEN_OUT_OF_RANGE',
        `row ${index} of ${spec.name} does not exist; it has ${rows} rows`,
        { position, index, rows },
      );
    }
    return length / rows;
  }

  async #uploadGroup(
    group: ParameterGroup,
    params: readonly WantedParam[],
    turns: Turns,
  ): Promise<void> {
    const bytesPer = elementBytes(this.#store.dtype);
    const from = Math.min(...params.map(({ address }) => address.offset));
    const to = Math.max(...params.map(({ address }) => address.offset + address.length));
    for (const segment of segmentsOf(group, from, to - from)) {
      const location = this.#store.location(segment.shard, 'param');
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
          await upload.write(first - address.offset, piece, this.#store.dtype);
          if (counted) this.#tiers.countUpload(piece.byteLength);
        }
      };
      const { start, length } = segment;
      await this.#tiers.read(location, this.#store.dtype, start, length, visit, turns);
    }
  }

  /** Streams stored parameter elements of a group range; `counted` tells whether they cross a link. */
  async #readRange(
    address: ParamAddress,
    start: number,
    count: number,
    visit: (offset: number, bytes: Uint8Array, counted: boolean) => Promise<void>,
    turns: Turns,
  ): Promise<void> {
    for (const segment of segmentsOf(this.#store.group(address), start, count)) {
      const location = this.#store.location(segment.shard, 'param');
      const counted = location.kind === 'nvme' || location.tier === 'host';
      await this.#tiers.read(
        location,
        this.#store.dtype,
        segment.start,
        segment.length,
        (offset, bytes) => visit(segment.offset + offset, bytes, counted),
        turns,
      );
    }
  }

  /** Copies the wanted rows, visiting positions in ascending row order. */
  async #gather(
    address: ParamAddress,
    columns: number,
    indices: Int32Array,
    order: readonly number[],
    upload: Target,
    turns: Turns,
  ): Promise<void> {
    const bytesPer = elementBytes(this.#store.dtype);
    const rowStart = (at: number): number => {
      const position = order[at];
      return address.offset + (position === undefined ? 0 : (indices[position] ?? 0)) * columns;
    };
    const group = this.#store.group(address);
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
            await upload.write(position * columns + first - row, piece, this.#store.dtype);
            if (counted) this.#tiers.countUpload(piece.byteLength);
          }
        },
        turns,
      );
      at = end;
    }
  }
}

/** Positions of `indices` in ascending order of index, then of position. */
function sortedPositions(indices: Int32Array): number[] {
  return Array.from(indices.keys()).sort((a, b) => (indices[a] ?? 0) - (indices[b] ?? 0) || a - b);
}

/** Whether a row that starts at `start` shares a chunk with (or follows) elements before `end`. */
function isNearby(group: ParameterGroup, end: number, start: number): boolean {
  if (start <= end) return true;
  const shard = group.shards.findLast((candidate) => candidate.start < end);
  assert(shard !== undefined, 'the element lies in a shard');
  const within = (element: number): number => Math.floor((element - shard.start) / CHUNK_ELEMENTS);
  return start < shard.start + shard.length && within(start) === within(end - 1);
}
