/**
 * @file Brings parameters from their home tiers to the device: whole, by row ranges, by rows.
 *
 * Reads each stored chunk once per call, in pieces; counts the bytes that cross the upload link
 * (what is homed on the device does not). Tensors are the caller's.
 */
import type { Tensor } from '@tensorflow/tfjs-core';
import { SpillwayError, assert } from '../../core/errors.js';
import { CHUNK_ELEMENTS, elementBytes } from '../../core/types.js';
import type { TensorUpload } from '../../tiers/device/device.js';
import type { TierManager } from '../../tiers/tier-manager.js';
import type { BlockAux, ParamName, Params, RowGather, Tile, TiledBlock } from '../model/block.js';
import { segmentsOf, type ParamAddress, type ParameterGroup } from '../plan/parameter-layout.js';
import { keepsBfloat16 } from '../plan/tensor-bytes.js';
import type { ParameterStore } from './parameter-store.js';

/** Part of an upload: elements of one parameter within its group. */
interface WantedParam {
  readonly address: ParamAddress;
  readonly upload: TensorUpload;
}

export class ParameterLoader {
  readonly #tiers: TierManager;
  readonly #store: ParameterStore;

  constructor(tiers: TierManager, store: ParameterStore) {
    this.#tiers = tiers;
    this.#store = store;
  }

  /** Rows of a matrix or table. */
  rowCount(name: ParamName): number {
    return this.#store.address(name).spec.shape[0] ?? 0;
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
        const address = this.#store.address(name);
        const aliased = this.#alias(address, address.offset, address.spec.shape);
        if (aliased !== undefined) {
          tensors[name] = aliased;
          continue;
        }
        const { shape } = address.spec;
        const { bf16Operands } = device.capabilities;
        const keepBfloat16 = keepsBfloat16(shape, this.#store.dtype, bf16Operands);
        const upload = device.beginUpload(shape, name, { keepBfloat16 });
        const group = this.#store.group(address);
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
    const address = this.#store.address(name);
    const columns = address.length / (address.spec.shape[0] ?? 1);
    const start = address.offset + firstRow * columns;
    const aliased = this.#alias(address, start, [rowCount, columns]);
    if (aliased !== undefined) return aliased;
    const upload = this.#tiers.device.beginUpload([rowCount, columns], name);
    try {
      await this.#readRange(address, start, rowCount * columns, (offset, bytes, counted) => {
        if (counted) this.#tiers.countUpload(bytes.byteLength);
        return upload.write(offset, bytes, this.#store.dtype);
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
    const address = this.#store.address(name);
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

  /** Runs `body` on the whole parameters `names` and frees them. */
  async withParams<T>(
    names: readonly ParamName[],
    body: (params: Params) => Promise<T>,
  ): Promise<T> {
    const params = await this.loadParams(names);
    try {
      return await body(params);
    } finally {
      for (const tensor of Object.values(params)) tensor.dispose();
    }
  }

  /** Runs `body` on the rows that tokens `first …` of a sequence read, and frees them. */
  async withRows<T>(
    gathers: readonly RowGather[],
    fields: BlockAux['fields'],
    first: number,
    body: (rows: readonly Tensor[]) => Promise<T>,
  ): Promise<T> {
    const rows: Tensor[] = [];
    try {
      for (const gather of gathers) {
        rows.push(await this.gatherRows(gather.param, gather.indices(fields, first)));
      }
      return await body(rows);
    } finally {
      for (const tensor of rows) tensor.dispose();
    }
  }

  /** Visits the tiles of a tiled block's matrix, ascending; each is freed after its visit. */
  async eachTile(block: TiledBlock, visit: (tile: Tile) => Promise<void>): Promise<void> {
    const { tiledParam, tileRows } = block;
    const rows = this.rowCount(tiledParam);
    for (let index = 0, firstRow = 0; firstRow < rows; index += 1, firstRow += tileRows) {
      const rowCount = Math.min(tileRows, rows - firstRow);
      const weight = await this.loadRows(tiledParam, firstRow, rowCount);
      try {
        await visit({ weight, index, firstRow, rowCount });
      } finally {
        weight.dispose();
      }
    }
  }

  /** A tensor over elements `start …` of the group's own bytes, where the parameter is float32 and
   * homed on the device. */
  #alias(address: ParamAddress, start: number, shape: readonly number[]): Tensor | undefined {
    const bytes = this.#store.deviceBytes(this.#store.group(address));
    if (bytes === undefined || this.#store.dtype !== 'float32') return undefined;
    const length = shape.reduce((product, size) => product * size, 1);
    return this.#tiers.device.alias(bytes.subarray(start * 4, (start + length) * 4), shape);
  }

  async #uploadGroup(group: ParameterGroup, params: readonly WantedParam[]): Promise<void> {
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
      await this.#tiers.read(location, this.#store.dtype, segment.start, segment.length, visit);
    }
  }

  /** Streams stored parameter elements of a group range; `counted` tells whether they cross a link. */
  async #readRange(
    address: ParamAddress,
    start: number,
    count: number,
    visit: (offset: number, bytes: Uint8Array, counted: boolean) => Promise<void>,
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
