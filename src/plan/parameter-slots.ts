/**
 * @file Parameters of a step in the slots of the device's region.
 *
 * Whole parameters stay in their slots as long as nothing needs the room that is used earlier
 * (Belady's rule, which is optimal here: slots are equal and nothing is written back), so a step
 * with C slots and L equal blocks loads 2L-C times in vertical order, and L+(2G-1)(L-C) times in
 * horizontal order. Tiles of the head come and go.
 */
import { assert } from '../../core/errors.js';
import type { TiledBlock } from '../model/block.js';
import type { OperationList } from './operation-list.js';
import { isReadAtHome } from './packed-params.js';
import type { PassInput } from './step-input.js';
import type { OperationId } from './step-plan.js';
import type { StepSizes } from './step-sizes.js';

interface Slot {
  readonly start: number;
  block: number | undefined;
  claim: object | undefined;
  /** The fetch that fills it. */
  fetch: OperationId;
  /** Number of the visit that used it last. */
  lastUse: number;
}

export class ParameterSlots {
  /** Whole-parameter fetches. */
  loadCount = 0;
  readonly #input: PassInput;
  readonly #ops: OperationList;
  readonly #sizes: StepSizes;
  readonly #slots: Slot[];
  /** Blocks in the order in which their slots are needed, and how far the step has come in it. */
  readonly #needs: readonly number[];
  #needIndex = 0;
  #tileTurn = 0;
  #headSlot: { claim: object; fetch: OperationId } | undefined;

  /** @param direction `forward`: no reverse pass follows */
  constructor(
    input: PassInput,
    ops: OperationList,
    sizes: StepSizes,
    direction: 'both' | 'forward' = 'both',
  ) {
    this.#input = input;
    this.#ops = ops;
    this.#sizes = sizes;
    const { region } = input;
    this.#slots = Array.from({ length: region.paramSlots }, (_, index) => ({
      start: index * region.paramSlotBytes,
      block: undefined,
      claim: undefined,
      fetch: -1,
      lastUse: -1,
    }));
    this.#needs = this.#needSequence(direction);
  }

  /** Makes sure that a block's parameters are, or will be, in a slot. */
  params(block: number): {
    offset: number;
    after: OperationId[];
    claims: object[];
    fences: number[];
    advance: boolean;
  } {
    const fences = this.#sizes.aliasedGroups(block);
    if (this.#sizes.packed[block]!.byteLength === 0) {
      return { offset: 0, after: [], claims: [], fences, advance: false };
    }
    const present = this.#slots.find((slot) => slot.block === block);
    const slot = present ?? this.#load(block);
    slot.lastUse = this.#needIndex;
    const claims = [slot.claim!];
    return { offset: slot.start, after: [slot.fetch], claims, fences, advance: true };
  }

  /** After a block's last micro-batch of this visit, its next need is a later one. */
  advanceAfter(block: number, microBatch: number): void {
    const { plan, microBatches } = this.#input;
    const isLast = plan.order === 'horizontal' || microBatch === microBatches.length - 1;
    if (!isLast) return;
    assert(this.#needs[this.#needIndex] === block, 'blocks are needed in the order foreseen');
    this.#needIndex += 1;
  }

  /** The tiled block's other parameters, at a place of their own. */
  headParams(block: number): {
    offset: number;
    after: OperationId[];
    claims: object[];
    fences: number[];
  } {
    const { byteLength } = this.#sizes.packed[block]!;
    const offset = this.#input.region.headOffset;
    const fences = this.#sizes.aliasedGroups(block);
    if (byteLength === 0) return { offset, after: [], claims: [], fences };
    if (this.#headSlot === undefined) {
      const area = { start: offset, end: offset + byteLength };
      const { after, claim } = this.#ops.region.claim(area, () => {
        this.#headSlot = undefined;
      });
      const { read, upload } = this.#sizes.paramBytes(block);
      const action = { kind: 'fetch-params', block, offset } as const;
      const fetch = this.#ops.fetch(
        action,
        read,
        upload,
        after,
        claim,
        this.#sizes.groupsOf(block),
      );
      this.#headSlot = { claim, fetch };
    }
    const { fetch, claim } = this.#headSlot;
    return { offset, after: [fetch], claims: [claim], fences };
  }

  /** A tile of the head's matrix, fetched; or nothing to wait for but its update, where it lives. */
  tile(
    block: TiledBlock,
    tile: number,
  ): { offset: number | undefined; after: OperationId[]; claims: object[]; fences: number[] } {
    const { address, read, upload } = this.#sizes.tile(block, tile);
    if (isReadAtHome(address, this.#input)) {
      return { offset: undefined, after: [], claims: [], fences: [address.group] };
    }
    const { tileSlots, tileSlotBytes, tileOffset } = this.#input.region;
    const offset = tileOffset + (this.#tileTurn % tileSlots) * tileSlotBytes;
    this.#tileTurn += 1;
    const area = { start: offset, end: offset + tileSlotBytes };
    const { after, claim } = this.#ops.region.claim(area, () => undefined);
    const action = { kind: 'fetch-tile', tile, offset } as const;
    const fetched = this.#ops.fetch(action, read, upload, after, claim, [address.group]);
    return { offset, after: [fetched], claims: [claim], fences: [] };
  }

  #needSequence(direction: 'both' | 'forward'): number[] {
    const { blocks, microBatches, plan } = this.#input;
    const dense = blocks.flatMap((block, index) =>
      block.kind === 'dense' && this.#sizes.packed[index]!.byteLength > 0 ? [index] : [],
    );
    const lastIndex = blocks.length - 1;
    const forward = dense.filter((index) => index !== lastIndex);
    const pass = direction === 'forward' ? dense : [...forward, ...dense.toReversed()];
    const passes = plan.order === 'vertical' ? 1 : microBatches.length;
    return Array.from({ length: passes }, () => pass).flat();
  }

  #load(block: number): Slot {
    const slot = this.#victim();
    slot.block = undefined;
    const { paramSlotBytes } = this.#input.region;
    const area = { start: slot.start, end: slot.start + paramSlotBytes };
    const { after, claim } = this.#ops.region.claim(area, () => {
      slot.block = undefined;
    });
    const { read, upload } = this.#sizes.paramBytes(block);
    const action = { kind: 'fetch-params', block, offset: slot.start } as const;
    slot.fetch = this.#ops.fetch(action, read, upload, after, claim, this.#sizes.groupsOf(block));
    slot.claim = claim;
    slot.block = block;
    this.loadCount += 1;
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
}
