/**
 * @file Writes down one training step as operations (step-plan.ts).
 *
 * Program order: vertical runs all micro-batches of a block, then the next block; horizontal runs
 * one pass over all blocks per micro-batch. Whole parameters stay in the region's slots as long as
 * nothing needs the room that is used earlier (Belady's rule, which is optimal here: slots are
 * equal and nothing is written back), so a step with C slots and L equal blocks loads 2L-C times
 * in vertical order, and L+(2G-1)(L-C) times in horizontal order.
 *
 * A pass of one micro-batch hands activations and their gradients from block to block on the
 * device; checkpoints are spilled beside. With several, each waits in its own place.
 *
 * Pure functions.
 */
import { assert } from '../../core/errors.js';
import { CHUNK_ELEMENTS, type Link } from '../../core/types.js';
import type { Block, DenseBlock, RowBlock, TiledBlock } from '../model/block.js';
import { homeOf, statesOf, type MemoryPlan } from './placement.js';
import { packParams, type PackedParams, type PackingInput } from './packed-params.js';
import type { ParamAddress, ParameterGroup } from './parameter-layout.js';
import { RegionTracker } from './region-tracker.js';
import type {
  Action,
  Operation,
  OperationId,
  Output,
  Phase,
  RegionPlan,
  Source,
  StepPlan,
} from './step-plan.js';
import {
  chunkBytes,
  gradientRuns,
  gradientWriteBytes,
  groupReadBytes,
  runLength,
  storedBytes,
  writeBytes,
} from './transfer-bytes.js';

/** Sizes of one micro-batch. */
export interface MicroBatchShape {
  /** Elements of the input of each block; 0 for the first. */
  readonly activationLengths: readonly number[];
  /** Rows of each gather of the first block. */
  readonly gatherRows: readonly number[];
  /** Elements of the losses that the last block gives. */
  readonly lossLength: number;
  /** Bytes of the batch fields by name. */
  readonly fieldBytes: Readonly<Record<string, number>>;
}

export interface StepInput extends PackingInput {
  readonly blocks: readonly Block[];
  readonly plan: Pick<
    MemoryPlan,
    'order' | 'homes' | 'activationTiers' | 'headWave' | 'useAccumulators'
  >;
  readonly region: RegionPlan;
  /** Compute operations that may start while outputs of the one before are still on their way. */
  readonly spillLag: 0 | 1;
  readonly microBatches: readonly MicroBatchShape[];
  /** Elements that the place of each block's input is made for: the largest batch's. */
  readonly slotLengths: readonly number[];
  /** Whether updates wait for the global norm. */
  readonly clips: boolean;
}

/** The operations of one step. */
export function buildStep(input: StepInput): StepPlan {
  return new StepBuilder(input).build();
}

/** An activation, or its gradient, between two compute operations. */
interface Held {
  /** The compute operation whose output it still is, on the device. */
  operation: OperationId | undefined;
  /** Its spill to the home; undefined while the home is the device. */
  spill: OperationId | undefined;
}

/** Compute operations that may start before the losses of an earlier one have been read. */
const LOSS_LAG = 4;

interface PendingFree {
  readonly output: Output;
  /** The transfer that reads it. */
  readonly reader: OperationId;
  /** Number of the first compute operation that may free it. */
  readonly from: number;
}

interface Slot {
  readonly start: number;
  block: number | undefined;
  claim: object | undefined;
  /** The fetch that fills it. */
  fetch: OperationId;
  /** Number of the visit that used it last. */
  lastUse: number;
}

class StepBuilder {
  readonly #input: StepInput;
  readonly #operations: Operation[] = [];
  readonly #region = new RegionTracker();
  readonly #packed: readonly PackedParams[];
  readonly #slots: Slot[];
  /** Blocks in the order in which their slots are needed, and how far the step has come in it. */
  readonly #needs: readonly number[];
  #needIndex = 0;
  #activationTurn = 0;
  #tileTurn = 0;
  #computeCount = 0;
  #paramLoadCount = 0;
  #phase: Phase = 'forward';
  /** Inputs of blocks by `block/microBatch`. */
  readonly #held = new Map<string, Held>();
  #pending: PendingFree[] = [];
  /** The last write of each group's gradient, and those of accumulators by parameter. */
  readonly #gradientWrites = new Map<number, OperationId>();
  readonly #usesToMerge = new Map<ParamAddress, OperationId[]>();
  readonly #fieldsSent = new Set<string>();
  readonly #losses: OperationId[] = [];
  /** The last addition to the row gradients. */
  #rowsAdded: OperationId | undefined;
  #headSlot: { claim: object; fetch: OperationId } | undefined;

  constructor(input: StepInput) {
    this.#input = input;
    const { blocks, region } = input;
    this.#packed = blocks.map((block) => packParams(block, input));
    this.#slots = Array.from({ length: region.paramSlots }, (_, index) => ({
      start: index * region.paramSlotBytes,
      block: undefined,
      claim: undefined,
      fetch: -1,
      lastUse: -1,
    }));
    this.#needs = this.#needSequence();
  }

  build(): StepPlan {
    const all = this.#input.microBatches.map((_, index) => index);
    if (this.#input.plan.order === 'vertical') this.#pass(all, true, true);
    else for (const one of all) this.#pass([one], one === 0, one === all.length - 1);
    this.#updates();
    return { operations: this.#operations, paramLoadCount: this.#paramLoadCount };
  }

  // ---- program order

  #pass(microBatches: readonly number[], first: boolean, last: boolean): void {
    const { blocks } = this.#input;
    this.#phase = 'forward';
    for (const [index, block] of blocks.slice(0, -1).entries()) {
      if (block.kind === 'row') for (const one of microBatches) this.#rows(one);
      else for (const one of microBatches) this.#forward(index, one);
    }
    const lastIndex = blocks.length - 1;
    const lastBlock = blocks[lastIndex]!;
    if (lastBlock.kind === 'tiled') this.#head(lastBlock, lastIndex, microBatches, first);
    this.#phase = 'backward';
    for (let index = lastIndex; index >= 0; index -= 1) {
      const block = blocks[index]!;
      if (block.kind === 'dense') this.#reverse(block, index, microBatches, first);
      else if (block.kind === 'row') this.#reverseRows(block, microBatches, last);
      if (last) this.#mergeUses(index);
    }
  }

  #needSequence(): number[] {
    const { blocks, microBatches, plan } = this.#input;
    const dense = blocks.flatMap((block, index) =>
      block.kind === 'dense' && this.#packed[index]!.byteLength > 0 ? [index] : [],
    );
    const lastIndex = blocks.length - 1;
    const forward = dense.filter((index) => index !== lastIndex);
    const pass = [...forward, ...dense.toReversed()];
    const passes = plan.order === 'vertical' ? 1 : microBatches.length;
    return Array.from({ length: passes }, () => pass).flat();
  }

  #rows(microBatch: number): void {
    const { offset, claim, after } = this.#claimActivation();
    const { read, upload } = this.#rowBytes(microBatch);
    const action = { kind: 'fetch-rows', microBatch, offset } as const;
    const fetched = this.#fetch(action, read, upload, after, claim, this.#groupsOf(0));
    const id = this.#compute({ kind: 'rows', microBatch, offset }, [fetched], [claim], {
      fieldBytes: this.#fieldBytes(0, microBatch),
    });
    this.#put(1, microBatch, id);
  }

  #forward(block: number, microBatch: number): void {
    const params = this.#params(block);
    const input = block === 0 ? undefined : this.#activation(block, microBatch);
    const id = this.#compute(
      { kind: 'forward', block, microBatch, offset: params.offset, input: input?.source },
      [...params.after, ...(input?.after ?? [])],
      [...params.claims, ...(input?.claims ?? [])],
      { fieldBytes: this.#fieldBytes(block, microBatch), fences: params.fences },
    );
    if (params.advance) this.#advanceAfter(block, microBatch);
    if (input !== undefined) this.#letGo(block, microBatch);
    this.#put(block + 1, microBatch, id);
  }

  #reverse(
    block: DenseBlock,
    index: number,
    microBatches: readonly number[],
    first: boolean,
  ): void {
    const isLast = index === this.#input.blocks.length - 1;
    let sums: OperationId | undefined;
    for (const microBatch of microBatches) {
      const params = this.#params(index);
      const input = index === 0 ? undefined : this.#activation(index, microBatch);
      const dy = isLast ? undefined : this.#activation(index + 1, microBatch);
      const id = this.#compute(
        {
          kind: 'reverse',
          block: index,
          microBatch,
          offset: params.offset,
          input: input?.source,
          dy: dy?.source,
          sums,
        },
        [...params.after, ...(input?.after ?? []), ...(dy?.after ?? [])],
        [...params.claims, ...(input?.claims ?? []), ...(dy?.claims ?? [])],
        { fieldBytes: this.#fieldBytes(index, microBatch), fences: params.fences },
      );
      if (params.advance) this.#advanceAfter(index, microBatch);
      if (!isLast) this.#held.delete(`${index + 1}/${microBatch}`);
      if (isLast) this.#loss(microBatch, id);
      if (index > 0) this.#replace(index, microBatch, id);
      sums = id;
    }
    assert(sums !== undefined, 'a pass has micro-batches');
    this.#writeGradients(index, sums, first);
  }

  #reverseRows(block: RowBlock, microBatches: readonly number[], last: boolean): void {
    for (const microBatch of microBatches) {
      const dy = this.#activation(1, microBatch);
      const action = { kind: 'reverse-rows', microBatch, dy: dy.source } as const;
      const id = this.#compute(action, dy.after, dy.claims);
      this.#held.delete(`1/${microBatch}`);
      this.#addRows(block, microBatch, id);
    }
    if (!last) return;
    for (const { param } of block.gathers) if (this.#isTrainable(param)) this.#writeRows(param);
  }

  #addRows(block: RowBlock, microBatch: number, operation: OperationId): void {
    const output = { operation, part: 'gradients' } as const;
    const rows = this.#input.microBatches[microBatch]!.gatherRows;
    const bytes = block.gathers.reduce(
      (sum, { param }, gather) =>
        this.#isTrainable(param) ? sum + rows[gather]! * this.#columnsOf(block, gather) * 4 : sum,
      0,
    );
    if (bytes === 0) {
      this.#drop(output, operation);
      return;
    }
    const action = { kind: 'add-rows', microBatch, operation } as const;
    const before = this.#rowsAdded === undefined ? [] : [this.#rowsAdded];
    this.#rowsAdded = this.#add('download', action, { download: bytes }, [...before, operation]);
    this.#freeLater(output, this.#rowsAdded);
  }

  #head(block: TiledBlock, index: number, all: readonly number[], first: boolean): void {
    const { headWave } = this.#input.plan;
    for (let start = 0; start < all.length; start += headWave) {
      this.#wave(block, index, all.slice(start, start + headWave), first && start === 0);
    }
  }

  #wave(block: TiledBlock, index: number, wave: readonly number[], firstWave: boolean): void {
    this.#phase = 'forward';
    const params = this.#headParams(index);
    for (const microBatch of wave) {
      const input = this.#activation(index, microBatch);
      this.#compute(
        { kind: 'prepare', microBatch, offset: params.offset, input: input.source },
        [...params.after, ...input.after],
        [...params.claims, ...input.claims],
        { fieldBytes: this.#fieldBytes(index, microBatch), fences: params.fences },
      );
      this.#letGo(index, microBatch);
    }
    const tiles = this.#tileCount(block);
    for (let tile = 0; tile < tiles; tile += 1) {
      const { offset, after, claims } = this.#tile(block, tile);
      this.#compute({ kind: 'forward-tile', tile, microBatches: wave, offset }, after, claims);
    }
    for (const microBatch of wave) {
      this.#loss(microBatch, this.#compute({ kind: 'end', microBatch }, [], []));
    }
    this.#phase = 'backward';
    for (let tile = 0; tile < tiles; tile += 1) {
      this.#backwardTile(block, index, tile, wave, firstWave);
    }
    let sums: OperationId | undefined;
    for (const microBatch of wave) {
      const again = this.#headParams(index);
      const input = this.#activation(index, microBatch);
      const id = this.#compute(
        { kind: 'reverse-prepare', microBatch, offset: again.offset, input: input.source, sums },
        [...again.after, ...input.after],
        [...again.claims, ...input.claims],
      );
      this.#replace(index, microBatch, id);
      if (firstWave) sums = id;
      else this.#writeGradients(index, id, false);
    }
    if (sums !== undefined) this.#writeGradients(index, sums, true);
  }

  #backwardTile(
    block: TiledBlock,
    index: number,
    tile: number,
    wave: readonly number[],
    firstWave: boolean,
  ): void {
    const loaded = this.#tile(block, tile);
    const parts = firstWave ? [wave] : wave.map((one) => [one]);
    for (const microBatches of parts) {
      const id = this.#compute(
        { kind: 'backward-tile', tile, microBatches, offset: loaded.offset },
        loaded.after,
        loaded.claims,
      );
      const output = { operation: id, part: 'gradients' } as const;
      if (this.#isTrainable(block.tiledParam)) this.#writeTile(block, index, tile, id, firstWave);
      else this.#drop(output, id);
    }
  }

  #updates(): void {
    this.#phase = 'update';
    const { layout, clips } = this.#input;
    const trainable = layout.groups.filter((group) => group.trainable);
    const writes = [...this.#gradientWrites.values()];
    const norm = this.#add('update', { kind: 'norm' }, {}, [...this.#losses, ...writes]);
    // Without clipping in the order in which gradients are complete, else as the next forward reads.
    const ordered = clips ? trainable : trainable.toReversed();
    for (const group of ordered) {
      const after = clips ? [norm] : [...this.#losses, this.#gradientWrites.get(group.index)!];
      for (const shard of group.shards) this.#update(group, shard.id, shard.length, after);
    }
  }

  #update(group: ParameterGroup, shard: number, length: number, after: OperationId[]): void {
    const { homes, dtype } = this.#input;
    const states = statesOf(group, dtype).filter(
      (state) => homeOf(homes[group.index]!, state) === 'nvme',
    );
    const bytes = (some: typeof states) =>
      some.reduce(
        (sum, state) => sum + chunkBytes(length, storedBytes(state, dtype), 0, length),
        0,
      );
    const action = { kind: 'update', shard, group: group.index, length } as const;
    const moved = {
      nvme_read: bytes(states),
      nvme_write: bytes(states.filter((state) => state !== 'grad')),
    };
    this.#add('update', action, moved, after);
  }

  // ---- activations

  /** Where block `block` finds its input (or, in the reverse pass, the gradient of its output). */
  #activation(
    block: number,
    microBatch: number,
  ): { source: Source; after: OperationId[]; claims: object[] } {
    const held = this.#held.get(`${block}/${microBatch}`);
    assert(held !== undefined, 'the activation exists', { block, microBatch });
    if (held.operation !== undefined) {
      return { source: { kind: 'output', operation: held.operation }, after: [], claims: [] };
    }
    assert(held.spill !== undefined, 'an activation that left the device was spilled');
    const length = this.#input.microBatches[microBatch]!.activationLengths[block]!;
    const nvme = this.#homeOfActivation(block, microBatch) === 'nvme';
    const read = nvme ? chunkBytes(this.#input.slotLengths[block]!, 4, 0, length) : 0;
    const { offset, claim, after } = this.#claimActivation();
    const action = { kind: 'fetch-activation', block, microBatch, offset } as const;
    const fetched = this.#fetch(action, read, length * 4, [held.spill, ...after], claim);
    return { source: { kind: 'region', offset }, after: [fetched], claims: [claim] };
  }

  /** `operation` made the input of `block`: leaves it on the device, or spills it. */
  #put(block: number, microBatch: number, operation: OperationId): void {
    const { blocks } = this.#input;
    const held: Held = { operation, spill: undefined };
    this.#held.set(`${block}/${microBatch}`, held);
    // A last dense block uses its input once, at once.
    const usedOnce = block === blocks.length - 1 && blocks[block]!.kind === 'dense';
    if (this.#homeOfActivation(block, microBatch) === 'device') return;
    if (this.#carries && usedOnce) return;
    this.#spill(block, microBatch, held, operation);
    // Where activations are carried, the next operation takes it from the device; see #letGo.
    if (!this.#carries) this.#letGo(block, microBatch);
  }

  /** Whether an activation is handed from one operation to the next on the device. */
  get #carries(): boolean {
    const { plan, microBatches } = this.#input;
    return plan.order === 'horizontal' || microBatches.length === 1;
  }

  /** The gradient of the input of `block` takes the input's place. */
  #replace(block: number, microBatch: number, operation: OperationId): void {
    const before = this.#held.get(`${block}/${microBatch}`);
    if (before?.operation !== undefined) {
      assert(before.spill === undefined, 'what was spilled has left the device');
      this.#drop({ operation: before.operation, part: 'activation' }, operation);
    }
    // What was there may still be on its way to its home.
    const held: Held = { operation, spill: before?.spill };
    this.#held.set(`${block}/${microBatch}`, held);
    if (this.#carries || this.#homeOfActivation(block, microBatch) === 'device') {
      held.spill = undefined;
      return;
    }
    this.#spill(block, microBatch, held, operation);
    this.#letGo(block, microBatch);
  }

  #spill(block: number, microBatch: number, held: Held, operation: OperationId): void {
    const length = this.#input.microBatches[microBatch]!.activationLengths[block]!;
    const action = { kind: 'spill-activation', block, microBatch, operation } as const;
    const previous = held.spill === undefined ? [] : [held.spill];
    const nvme = this.#homeOfActivation(block, microBatch) === 'nvme';
    const bytes = nvme
      ? writeBytes(this.#input.slotLengths[block]!, 4, 0, length, { add: false, preserve: false })
      : undefined;
    held.spill = this.#write(action, length * 4, bytes, [operation, ...previous]);
  }

  /** The input of `block` is not needed on the device for now; a spilled one may leave it. */
  #letGo(block: number, microBatch: number): void {
    const held = this.#held.get(`${block}/${microBatch}`)!;
    if (held.operation === undefined || held.spill === undefined) return;
    this.#freeLater({ operation: held.operation, part: 'activation' }, held.spill);
    held.operation = undefined;
  }

  #homeOfActivation(block: number, microBatch: number) {
    const { plan } = this.#input;
    const slot = plan.order === 'vertical' ? microBatch : 0;
    return plan.activationTiers[block]![slot]!;
  }

  #claimActivation(): { offset: number; claim: object; after: OperationId[] } {
    const { activationSlots, activationSlotBytes, activationOffset } = this.#input.region;
    assert(activationSlots > 0, 'what is fetched has a slot');
    const start = activationOffset + (this.#activationTurn % activationSlots) * activationSlotBytes;
    this.#activationTurn += 1;
    const area = { start, end: start + activationSlotBytes };
    const { after, claim } = this.#region.claim(area, () => undefined);
    return { offset: start, claim, after };
  }

  // ---- parameters

  /** Makes sure that a block's parameters are, or will be, in a slot. */
  #params(block: number): {
    offset: number;
    after: OperationId[];
    claims: object[];
    fences: number[];
    advance: boolean;
  } {
    const fences = this.#aliasedGroups(block);
    if (this.#packed[block]!.byteLength === 0) {
      return { offset: 0, after: [], claims: [], fences, advance: false };
    }
    const present = this.#slots.find((slot) => slot.block === block);
    const slot = present ?? this.#load(block);
    slot.lastUse = this.#needIndex;
    const claims = [slot.claim!];
    return { offset: slot.start, after: [slot.fetch], claims, fences, advance: true };
  }

  /** Groups that a block reads where they live, on the device. */
  #aliasedGroups(block: number): number[] {
    return [...new Set(this.#packed[block]!.aliased.map(({ group }) => group))];
  }

  #load(block: number): Slot {
    const slot = this.#victim();
    slot.block = undefined;
    const { paramSlotBytes } = this.#input.region;
    const area = { start: slot.start, end: slot.start + paramSlotBytes };
    const { after, claim } = this.#region.claim(area, () => {
      slot.block = undefined;
    });
    const { read, upload } = this.#paramBytes(block);
    const action = { kind: 'fetch-params', block, offset: slot.start } as const;
    slot.fetch = this.#fetch(action, read, upload, after, claim, this.#groupsOf(block));
    slot.claim = claim;
    slot.block = block;
    this.#paramLoadCount += 1;
    return slot;
  }

  /** The slot whose content is needed last, an empty one before all; the least recently used of
   * equals, so that its last user is long over. */
  #victim(): Slot {
    let best: { slot: Slot; next: number } | undefined;
    for (const slot of this.#slots) {
      const next = slot.block === undefined ? Infinity : this.#nextNeed(slot.block);
      if (
        best === undefined ||
        next > best.next ||
        (next === best.next && slot.lastUse < best.slot.lastUse)
      ) {
        best = { slot, next };
      }
    }
    assert(best !== undefined, 'the region has a slot for parameters');
    return best.slot;
  }

  #nextNeed(block: number): number {
    const at = this.#needs.indexOf(block, this.#needIndex);
    return at < 0 ? Number.MAX_SAFE_INTEGER : at;
  }

  /** After a block's last micro-batch of this visit, its next need is a later one. */
  #advanceAfter(block: number, microBatch: number): void {
    const { plan, microBatches } = this.#input;
    const isLast = plan.order === 'horizontal' || microBatch === microBatches.length - 1;
    if (!isLast) return;
    assert(this.#needs[this.#needIndex] === block, 'blocks are needed in the order foreseen');
    this.#needIndex += 1;
  }

  /** The tiled block's other parameters, at a place of their own. */
  #headParams(block: number): {
    offset: number;
    after: OperationId[];
    claims: object[];
    fences: number[];
  } {
    const { byteLength } = this.#packed[block]!;
    const offset = this.#input.region.headOffset;
    const fences = this.#aliasedGroups(block);
    if (byteLength === 0) return { offset, after: [], claims: [], fences };
    if (this.#headSlot === undefined) {
      const area = { start: offset, end: offset + byteLength };
      const { after, claim } = this.#region.claim(area, () => {
        this.#headSlot = undefined;
      });
      const { read, upload } = this.#paramBytes(block);
      const action = { kind: 'fetch-params', block, offset } as const;
      const fetch = this.#fetch(action, read, upload, after, claim, this.#groupsOf(block));
      this.#headSlot = { claim, fetch };
    }
    const { fetch, claim } = this.#headSlot;
    return { offset, after: [fetch], claims: [claim], fences };
  }

  #tile(
    block: TiledBlock,
    tile: number,
  ): { offset: number; after: OperationId[]; claims: object[] } {
    const { tileSlots, tileSlotBytes, tileOffset } = this.#input.region;
    const offset = tileOffset + (this.#tileTurn % tileSlots) * tileSlotBytes;
    this.#tileTurn += 1;
    const area = { start: offset, end: offset + tileSlotBytes };
    const { after, claim } = this.#region.claim(area, () => undefined);
    const { address, start, count } = this.#tileRange(block, tile);
    const group = this.#groupOf(address);
    const read = groupReadBytes(group, 'param', address.offset + start, count, this.#input);
    const upload = this.#isCounted(group) ? count * storedBytes('param', this.#input.dtype) : 0;
    const action = { kind: 'fetch-tile', tile, offset } as const;
    const fetched = this.#fetch(action, read, upload, after, claim, [group.index]);
    return { offset, after: [fetched], claims: [claim] };
  }

  #tileRange(
    block: TiledBlock,
    tile: number,
  ): { address: ParamAddress; start: number; count: number } {
    const address = this.#input.layout.params.get(block.tiledParam)!;
    const [rows, columns] = address.spec.shape as [number, number];
    const firstRow = tile * block.tileRows;
    return {
      address,
      start: firstRow * columns,
      count: Math.min(block.tileRows, rows - firstRow) * columns,
    };
  }

  #tileCount(block: TiledBlock): number {
    const rows = this.#input.layout.params.get(block.tiledParam)!.spec.shape[0]!;
    return Math.ceil(rows / block.tileRows);
  }

  // ---- gradients

  #writeGradients(index: number, operation: OperationId, first: boolean): void {
    const { layout } = this.#input;
    const whole = this.#packed[index]!;
    const addresses = [...whole.params.map(({ address }) => address), ...whole.aliased].filter(
      ({ spec }) => spec.trainable !== false,
    );
    if (addresses.length === 0) return;
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
    const action = { kind: 'write-gradients', block: index, operation, first } as const;
    const after = [operation, ...this.#earlierWrites(addresses)];
    const write = this.#write(action, downloaded, { read, written }, after);
    for (const address of addresses) this.#noteWrite(address, write, index);
    this.#freeLater({ operation, part: 'gradients' }, write);
  }

  #writeTile(
    block: TiledBlock,
    index: number,
    tile: number,
    operation: OperationId,
    first: boolean,
  ): void {
    const { address, start, count } = this.#tileRange(block, tile);
    const group = this.#groupOf(address);
    const add = this.#adds(address, index, first);
    const bytes = gradientWriteBytes(group, address.offset + start, count, add, this.#input);
    const action = { kind: 'write-tile', tile, operation, first } as const;
    // One after the other: neighbours share a chunk.
    const after = [operation, ...this.#earlierWrites([address])];
    const write = this.#write(action, count * 4, bytes, after);
    this.#noteWrite(address, write, index);
    this.#freeLater({ operation, part: 'gradients' }, write);
  }

  #writeRows(param: string): void {
    const { layout } = this.#input;
    const address = layout.params.get(param)!;
    this.#merge(address);
    const group = this.#groupOf(address);
    const add = (layout.users.get(param) ?? []).length > 1;
    const bytes = gradientWriteBytes(group, address.offset, address.length, add, this.#input);
    const added = this.#rowsAdded === undefined ? [] : [this.#rowsAdded];
    const after = [...added, ...this.#earlierWrites([address])];
    const write = this.#hostWrite({ kind: 'write-rows', param }, bytes, after);
    this.#noteWrite(address, write, 0);
  }

  /** Merges the lower uses of parameters whose gradient is complete after block `index`. */
  #mergeUses(index: number): void {
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
    const group = this.#groupOf(address);
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
    const merged = this.#hostWrite({ kind: 'merge-uses', param }, { read, written }, after);
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
    for (const shard of this.#groupOf(address).shards) {
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
    return [...groups].flatMap((group) => this.#gradientWrites.get(group) ?? []);
  }

  /** @param block the use, where its sums may go to an accumulator */
  #noteWrite(address: ParamAddress, write: OperationId, block: number | undefined): void {
    if (block !== undefined && this.#hasAccumulator(address, block)) {
      this.#usesToMerge.set(address, [...(this.#usesToMerge.get(address) ?? []), write]);
    }
    this.#gradientWrites.set(address.group, write);
  }

  // ---- operations

  #compute(
    action: Action,
    after: readonly OperationId[],
    claims: readonly object[],
    extra: { fieldBytes?: number; fences?: readonly number[] } = {},
  ): OperationId {
    const due = this.#pending.filter(({ from }) => from <= this.#computeCount);
    this.#pending = this.#pending.filter(({ from }) => from > this.#computeCount);
    const { fieldBytes = 0, fences = [] } = extra;
    const moved = fieldBytes > 0 ? { upload: fieldBytes } : {};
    const id = this.#add('compute', action, moved, after, {
      ...(due.length > 0 && {
        frees: due.map(({ output }) => output),
        copied: [...new Set(due.map(({ reader }) => reader))],
      }),
      ...(fences.length > 0 && { fences }),
    });
    for (const claim of claims) this.#region.use(claim, id);
    this.#computeCount += 1;
    return id;
  }

  /** An output leaves the device once `reader` has read it, `lag` compute operations from now. */
  #freeLater(output: Output, reader: OperationId, lag: number = this.#input.spillLag): void {
    this.#pending.push({ output, reader, from: this.#computeCount + lag });
  }

  /** An output is freed once `user`'s kernels are launched. */
  #drop(output: Output, user: OperationId): void {
    const old = this.#operations[user]!;
    this.#operations[user] = { ...old, drops: [...(old.drops ?? []), output] };
  }

  #loss(microBatch: number, operation: OperationId): void {
    const bytes = this.#input.microBatches[microBatch]!.lossLength * 4;
    const action = { kind: 'losses', microBatch, operation } as const;
    const previous = this.#losses.slice(-1);
    const loss = this.#add('download', action, { download: bytes }, [operation, ...previous]);
    this.#losses.push(loss);
    // They are few bytes, and compute is not to wait for them.
    this.#freeLater({ operation, part: 'losses' }, loss, LOSS_LAG);
  }

  /** NVMe or host memory to the device. */
  #fetch(
    action: Action,
    nvmeBytes: number,
    uploadBytes: number,
    after: readonly OperationId[],
    claim: object,
    fences: readonly number[] = [],
  ): OperationId {
    const bytes = { upload: uploadBytes, ...(nvmeBytes > 0 && { nvme_read: nvmeBytes }) };
    const id = this.#add('upload', action, bytes, after, fences.length > 0 ? { fences } : {});
    this.#region.use(claim, id);
    return id;
  }

  /** The device to host memory, and on to NVMe. */
  #write(
    action: Action,
    downloadBytes: number,
    nvme: { read: number; written: number } | undefined,
    after: readonly OperationId[],
  ): OperationId {
    const bytes = { download: downloadBytes, ...nvmeBytes(nvme) };
    return this.#add('download', action, bytes, after);
  }

  /** Host memory to a gradient's home. */
  #hostWrite(
    action: Action,
    nvme: { read: number; written: number },
    after: readonly OperationId[],
  ): OperationId {
    return this.#add('nvme_write', action, nvmeBytes(nvme), after);
  }

  #add(
    lane: Operation['lane'],
    action: Action,
    bytes: Operation['bytes'],
    after: readonly OperationId[],
    extra: Partial<Operation> = {},
  ): OperationId {
    const id = this.#operations.length;
    const sorted = [...new Set(after)].sort((a, b) => a - b);
    assert(
      sorted.every((other) => other >= 0 && other < id),
      'operations wait for earlier ones',
    );
    const phase = this.#phase;
    this.#operations.push({ id, lane, phase, action, bytes, after: sorted, ...extra });
    return id;
  }

  // ---- bytes

  #paramBytes(block: number): { read: number; upload: number } {
    const byGroup = new Map<ParameterGroup, ParamAddress[]>();
    for (const { address } of this.#packed[block]!.params) {
      const group = this.#groupOf(address);
      byGroup.set(group, [...(byGroup.get(group) ?? []), address]);
    }
    let read = 0;
    let upload = 0;
    for (const [group, addresses] of byGroup) {
      const from = Math.min(...addresses.map(({ offset }) => offset));
      const to = Math.max(...addresses.map(({ offset, length }) => offset + length));
      read += groupReadBytes(group, 'param', from, to - from, this.#input);
      const length = addresses.reduce((sum, address) => sum + address.length, 0);
      if (this.#isCounted(group)) upload += length * storedBytes('param', this.#input.dtype);
    }
    return { read, upload };
  }

  #rowBytes(microBatch: number): { read: number; upload: number } {
    const block = this.#input.blocks[0] as RowBlock;
    let read = 0;
    let upload = 0;
    for (const [gather, { param }] of block.gathers.entries()) {
      const address = this.#input.layout.params.get(param)!;
      const group = this.#groupOf(address);
      read += groupReadBytes(group, 'param', address.offset, address.length, this.#input);
      const rows = this.#input.microBatches[microBatch]!.gatherRows[gather]!;
      const bytes = rows * this.#columnsOf(block, gather) * storedBytes('param', this.#input.dtype);
      if (this.#isCounted(group)) upload += bytes;
    }
    return { read, upload };
  }

  #columnsOf(block: RowBlock, gather: number): number {
    return this.#input.layout.params.get(block.gathers[gather]!.param)!.spec.shape[1]!;
  }

  /** Whether reading a group's parameters crosses the upload link. */
  #isCounted(group: ParameterGroup): boolean {
    return this.#input.homes[group.index]!.param !== 'device';
  }

  #isTrainable(name: string): boolean {
    return this.#input.layout.params.get(name)!.spec.trainable !== false;
  }

  #groupOf(address: ParamAddress): ParameterGroup {
    return this.#input.layout.groups[address.group]!;
  }

  #groupsOf(block: number): number[] {
    const { blocks, layout } = this.#input;
    const groups = blocks[block]!.uses.map((name) => layout.params.get(name)!.group);
    return [...new Set(groups)].sort((a, b) => a - b);
  }

  /** Bytes of the fields that a block is the first to put on the device; they stay there. */
  #fieldBytes(block: number, microBatch: number): number {
    const { reads = [], readsIfPresent = [] } = this.#input.blocks[block]!;
    const { fieldBytes } = this.#input.microBatches[microBatch]!;
    let bytes = 0;
    for (const name of [...reads, ...readsIfPresent]) {
      const key = `${microBatch}/${name}`;
      if (this.#fieldsSent.has(key)) continue;
      this.#fieldsSent.add(key);
      bytes += fieldBytes[name] ?? 0;
    }
    return bytes;
  }
}

function nvmeBytes(
  moved: { read: number; written: number } | undefined,
): Partial<Record<Link, number>> {
  return {
    ...(moved !== undefined && moved.read > 0 && { nvme_read: moved.read }),
    ...(moved !== undefined && moved.written > 0 && { nvme_write: moved.written }),
  };
}

function nextChunk(element: number): number {
  return (Math.floor(element / CHUNK_ELEMENTS) + 1) * CHUNK_ELEMENTS;
}
