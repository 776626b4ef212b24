/**
 * @file What the fetches of a step move, and where parameters lie: sizes that do not change while
 * the step is written down.
 *
 * Pure.
 */
import type { RowBlock, TiledBlock } from '../model/block.js';
import { packParams, type PackedParams } from './packed-params.js';
import type { ParamAddress, ParameterGroup } from './parameter-layout.js';
import type { PassInput } from './step-input.js';
import { tablesReadAhead } from './tables-read-ahead.js';
import { groupReadBytes, storedBytes } from './transfer-bytes.js';

/** A tile of the head's matrix: where it lies, and what fetching it moves. */
export interface TileSizes {
  readonly address: ParamAddress;
  /** First element within the matrix, and elements. */
  readonly start: number;
  readonly count: number;
  readonly read: number;
  readonly upload: number;
}

export class StepSizes {
  readonly #input: PassInput;
  /** By block, and by tile: asked for again and again. */
  readonly #paramBytes: { read: number; upload: number }[] = [];
  readonly #groups: number[][] = [];
  readonly #tiles: TileSizes[] = [];
  /** Whole parameters of each block. */
  readonly packed: readonly PackedParams[];
  /** Groups of tables whose rows do not wait for their update. */
  readonly tablesReadAhead: ReadonlySet<number>;

  constructor(input: PassInput) {
    this.#input = input;
    this.tablesReadAhead = tablesReadAhead(input.blocks, input.layout, input);
    this.packed = input.blocks.map((block) => packParams(block, input));
  }

  paramBytes(block: number): Readonly<{ read: number; upload: number }> {
    return (this.#paramBytes[block] ??= this.#paramBytesOf(block));
  }

  #paramBytesOf(block: number): { read: number; upload: number } {
    const byGroup = new Map<ParameterGroup, ParamAddress[]>();
    for (const { address } of this.packed[block]!.params) {
      const group = this.groupOf(address);
      byGroup.set(group, [...(byGroup.get(group) ?? []), address]);
    }
    let read = 0;
    let upload = 0;
    for (const [group, addresses] of byGroup) {
      const from = Math.min(...addresses.map(({ offset }) => offset));
      const to = Math.max(...addresses.map(({ offset, length }) => offset + length));
      read += groupReadBytes(group, 'param', from, to - from, this.#input);
      const length = addresses.reduce((sum, address) => sum + address.length, 0);
      if (this.isCounted(group)) upload += length * storedBytes('param', this.#input.dtype);
    }
    return { read, upload };
  }

  rowBytes(microBatch: number): { read: number; upload: number } {
    const block = this.#input.blocks[0] as RowBlock;
    let read = 0;
    let upload = 0;
    for (const [gather, { param }] of block.gathers.entries()) {
      const address = this.#input.layout.params.get(param)!;
      const group = this.groupOf(address);
      read += groupReadBytes(group, 'param', address.offset, address.length, this.#input);
      const rows = this.#input.microBatches[microBatch]!.gatherRows[gather]!;
      const bytes = rows * this.columnsOf(block, gather) * storedBytes('param', this.#input.dtype);
      if (this.isCounted(group)) upload += bytes;
    }
    return { read, upload };
  }

  columnsOf(block: RowBlock, gather: number): number {
    return this.#input.layout.params.get(block.gathers[gather]!.param)!.spec.shape[1]!;
  }

  tile(block: TiledBlock, tile: number): TileSizes {
    return (this.#tiles[tile] ??= this.#tileOf(block, tile));
  }

  #tileOf(block: TiledBlock, tile: number): TileSizes {
    const { dtype } = this.#input;
    const address = this.#input.layout.params.get(block.tiledParam)!;
    const [rows, columns] = address.spec.shape as [number, number];
    const firstRow = tile * block.tileRows;
    const start = firstRow * columns;
    const count = Math.min(block.tileRows, rows - firstRow) * columns;
    const group = this.groupOf(address);
    const read = groupReadBytes(group, 'param', address.offset + start, count, this.#input);
    const upload = this.isCounted(group) ? count * storedBytes('param', dtype) : 0;
    return { address, start, count, read, upload };
  }

  /** Rows of the head's matrix. */
  rowCount(block: TiledBlock): number {
    return this.#input.layout.params.get(block.tiledParam)!.spec.shape[0]!;
  }

  tileCount(block: TiledBlock): number {
    return Math.ceil(this.rowCount(block) / block.tileRows);
  }

  /** Groups that a block reads where they live, on the device. */
  aliasedGroups(block: number): number[] {
    return [...new Set(this.packed[block]!.aliased.map(({ group }) => group))];
  }

  groupsOf(block: number): readonly number[] {
    return (this.#groups[block] ??= this.#groupsOf(block));
  }

  #groupsOf(block: number): number[] {
    const { blocks, layout } = this.#input;
    const groups = blocks[block]!.uses.map((name) => layout.params.get(name)!.group);
    return [...new Set(groups)].sort((a, b) => a - b);
  }

  groupOf(address: ParamAddress): ParameterGroup {
    return this.#input.layout.groups[address.group]!;
  }

  /** Whether reading a group's parameters crosses the upload link. */
  isCounted(group: ParameterGroup): boolean {
    return this.#input.homes[group.index]!.param !== 'device';
  }

  isTrainable(name: string): boolean {
    return this.#input.layout.params.get(name)!.spec.trainable !== false;
  }
}
