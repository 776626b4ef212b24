/**
 * @file Writes of a step's gradients to their homes, in the canonical order (GradientWriter): one
 * after the other where they touch the same group, and so perhaps the same chunks.
 */
import { CHUNK_ELEMENTS } from '../../core/types.js';
import type { RowBlock, TiledBlock } from '../model/block.js';
import type { OperationList } from './operation-list.js';
import type { ParamAddress } from './parameter-layout.js';
import type { StepInput } from './step-input.js';
import type { OperationId } from './step-plan.js';
import type { StepSizes } from './step-sizes.js';
import {
  chunkBytes,
  gradientRuns,
  gradientWriteBytes,
  runLength,
  writeBytes,
  type WriteBytes,
} from './transfer-bytes.js';

/** NVMe bytes of a write, and what it downloads. */
interface DownloadBytes extends WriteBytes {
  readonly downloaded: number;
}

export class GradientWrites {
  /** The last write of each group's gradient. */
  readonly lastWrites = new Map<number, OperationId>();
  readonly #input: StepInput;
  readonly #ops: OperationList;
  readonly #sizes: StepSizes;
  /** Writes to the accumulators of a parameter's lower uses. */
  readonly #usesToMerge = new Map<ParamAddress, OperationId[]>();
  /** Of a block's gradients and of a tile's, which many micro-batches and waves write. */
  readonly #gradientBytes = new Map<string, DownloadBytes>();
  readonly #tileBytes = new Map<string, WriteBytes>();
  /** The last addition to the row gradients. */
  #rowsAdded: OperationId | undefined;

  constructor(input: StepInput, ops: OperationList, sizes: StepSizes) {
    this.#input = input;
    this.#ops = ops;
    this.#sizes = sizes;
  }

  writeGradients(index: number, operation: OperationId, first: boolean): void {
    const whole = this.#sizes.packed[index]!;
    const addresses = [...whole.params.map(({ address }) => address), ...whole.aliased].filter(
      ({ spec }) => spec.trainable !== false,
    );
    if (addresses.length === 0) return;
    const key = `${index}/${first}`;
    let bytes = this.#gradientBytes.get(key);
    if (bytes === undefined) {
      bytes = this.#bytesOf(addresses, index, first);
      this.#gradientBytes.set(key, bytes);
    }
    const action = { kind: 'write-gradients', block: index, operation, first } as const;
    const after = [operation, ...this.#earlierWrites(addresses)];
    const write = this.#ops.write(action, bytes.downloaded, bytes, after);
    for (const address of addresses) this.#noteWrite(address, write, index);
    this.#ops.freeLater({ operation, part: 'gradients' }, write);
  }

  #bytesOf(addresses: readonly ParamAddress[], index: number, first: boolean): DownloadBytes {
    const { layout } = this.#input;
    let downloaded = 0;
    let read = 0;
    let written = 0;
    const home = addresses.filter((address) => !this.#hasAccumulator(address, index));
    for (const run of gradientRuns(home, layout.groups, (a) => this.#adds(a, index, first))) {
      const count = runLength(run);
      const bytes = gradientWriteBytes(run.group, run.start, count, run.add, this.#input);
      downloaded += count * 4;
      read += bytes.read;
      written += bytes.written;
    }
    for (const address of addresses.filter((one) => this.#hasAccumulator(one, index))) {
      downloaded += address.length * 4;
      if (this.#accumulatorTier(address, index) !== 'nvme') continue;
      const bytes = writeBytes(address.length, 4, 0, address.length, { add: !first });
      read += bytes.read;
      written += bytes.written;
    }
    return { downloaded, read, written };
  }

  writeTile(
    block: TiledBlock,
    index: number,
    tile: number,
    operation: OperationId,
    first: boolean,
  ): void {
    const { address, start, count } = this.#sizes.tile(block, tile);
    const key = `${tile}/${first}`;
    let bytes = this.#tileBytes.get(key);
    if (bytes === undefined) {
      const group = this.#sizes.groupOf(address);
      const add = this.#adds(address, index, first);
      bytes = gradientWriteBytes(group, address.offset + start, count, add, this.#input);
      this.#tileBytes.set(key, bytes);
    }
    const action = { kind: 'write-tile', tile, operation, first } as const;
    // One after the other: neighbours share a chunk.
    const after = [operation, ...this.#earlierWrites([address])];
    const write = this.#ops.write(action, count * 4, bytes, after);
    this.#noteWrite(address, write, index);
    this.#ops.freeLater({ operation, part: 'gradients' }, write);
  }

  addRows(block: RowBlock, microBatch: number, operation: OperationId): void {
    const output = { operation, part: 'gradients' } as const;
    const rows = this.#input.microBatches[microBatch]!.gatherRows;
    const bytes = block.gathers.reduce(
      (sum, { param }, gather) =>
        this.#sizes.isTrainable(param)
          ? sum + rows[gather]! * this.#sizes.columnsOf(block, gather) * 4
          : sum,
      0,
    );
    if (bytes === 0) {
      this.#ops.drop(output, operation);
      return;
    }
    const action = { kind: 'add-rows', microBatch, operation } as const;
    const before = this.#rowsAdded === undefined ? [] : [this.#rowsAdded];
    this.#rowsAdded = this.#ops.add('download', action, { download: bytes }, [
      ...before,
      operation,
    ]);
    this.#ops.freeLater(output, this.#rowsAdded);
  }

  writeRows(param: string): void {
    const { layout } = this.#input;
    const address = layout.params.get(param)!;
    this.#merge(address);
    const group = this.#sizes.groupOf(address);
    const add = (layout.users.get(param) ?? []).length > 1;
    const bytes = gradientWriteBytes(group, address.offset, address.length, add, this.#input);
    const added = this.#rowsAdded === undefined ? [] : [this.#rowsAdded];
    const after = [...added, ...this.#earlierWrites([address])];
    // Nothing else in this step may have waited for the table's update.
    const fences = this.#sizes.tablesReadAhead.has(group.index) ? [group.index] : [];
    const write = this.#ops.hostWrite({ kind: 'write-rows', param }, bytes, after, fences);
    this.#noteWrite(address, write, 0);
  }

  /** Merges the lower uses of parameters whose gradient is complete after block `index`. */
  mergeUses(index: number): void {
    for (const address of [...this.#usesToMerge.keys()]) {
      const users = this.#input.layout.users.get(address.spec.name) ?? [];
      if (Math.min(...users) === index) this.#merge(address);
    }
  }

  #merge(address: ParamAddress): void {
    const uses = this.#usesToMerge.get(address);
    if (uses === undefined) return;
    this.#usesToMerge.delete(address);
    const { plan } = this.#input;
    const group = this.#sizes.groupOf(address);
    let read = 0;
    let written = 0;
    for (const use of plan.useAccumulators.filter(({ param }) => param === address)) {
      const bytes = gradientWriteBytes(group, address.offset, address.length, true, this.#input);
      // The sum is read piece by piece as the home is written; see GradientWriter.
      const sum = use.tier === 'nvme' ? this.#nestedReadBytes(address) : 0;
      read += bytes.read + sum;
      written += bytes.written;
    }
    const param = address.spec.name;
    const after = [...uses, ...this.#earlierWrites([address])];
    const merged = this.#ops.hostWrite({ kind: 'merge-uses', param }, { read, written }, after);
    this.#noteWrite(address, merged, undefined);
  }

  /** NVMe bytes of reading an accumulator in the pieces in which its home is written. */
  #nestedReadBytes(address: ParamAddress): number {
    return this.#pieces(address).reduce(
      (sum, { offset, length }) => sum + chunkBytes(address.length, 4, offset, length),
      0,
    );
  }

  /** The pieces, chunk by chunk of the home's shards, in which a whole gradient is written. */
  #pieces(address: ParamAddress): { offset: number; length: number }[] {
    const pieces: { offset: number; length: number }[] = [];
    for (const shard of this.#sizes.groupOf(address).shards) {
      const from = Math.max(address.offset, shard.start);
      const to = Math.min(address.offset + address.length, shard.start + shard.length);
      for (let at = from; at < to;) {
        const end = Math.min(to, shard.start + nextChunk(at - shard.start));
        pieces.push({ offset: at - address.offset, length: end - at });
        at = end;
      }
    }
    return pieces;
  }

  #adds(address: ParamAddress, block: number, first: boolean): boolean {
    const users = this.#input.layout.users.get(address.spec.name) ?? [];
    return !(first && users.at(-1) === block);
  }

  #hasAccumulator(address: ParamAddress, block: number): boolean {
    return this.#accumulatorTier(address, block) !== undefined;
  }

  #accumulatorTier(address: ParamAddress, block: number) {
    return this.#input.plan.useAccumulators.find(
      (use) => use.param === address && use.block === block,
    )?.tier;
  }

  /** Writes that touch the same groups, and so perhaps the same chunks. */
  #earlierWrites(addresses: readonly ParamAddress[]): OperationId[] {
    const groups = new Set(addresses.map(({ group }) => group));
    return [...groups].flatMap((group) => this.lastWrites.get(group) ?? []);
  }

  /** @param block the use, where its sums may go to an accumulator */
  #noteWrite(address: ParamAddress, write: OperationId, block: number | undefined): void {
    if (block !== undefined && this.#hasAccumulator(address, block)) {
      this.#usesToMerge.set(address, [...(this.#usesToMerge.get(address) ?? []), write]);
    }
    this.lastWrites.set(address.group, write);
  }
}

function nextChunk(element: number): number {
  return (Math.floor(element / CHUNK_ELEMENTS) + 1) * CHUNK_ELEMENTS;
}
