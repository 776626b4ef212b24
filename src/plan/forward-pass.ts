/**
 * @file The forward pass of a step, or of an evaluation, as operations: rows, blocks, the head's tiles,
 * losses.
 */
import type { TiledBlock } from '../model/block.js';
import type { ActivationSlots } from './activation-slots.js';
import type { OperationList } from './operation-list.js';
import type { ParameterSlots } from './parameter-slots.js';
import type { PassInput } from './step-input.js';
import type { OperationId, Source } from './step-plan.js';
import type { StepSizes } from './step-sizes.js';

/** Where activations are between the blocks of a forward pass. */
export interface ForwardActivations {
  /** Where `block` finds its input. */
  activation(
    block: number,
    microBatch: number,
  ): { source: Source; after: OperationId[]; claims: object[] };
  /** `operation` made the input of `block`. */
  put(block: number, microBatch: number, operation: OperationId): void;
  /** `user` used the input of `block`, as the last one of this pass. */
  used(block: number, microBatch: number, user: OperationId): void;
}

/** Compute operations that may start before the losses of an earlier one have been read. */
const LOSS_LAG = 4;

export class ForwardPass {
  /** Operations that bring losses to the host, in order. */
  readonly losses: OperationId[] = [];
  readonly #input: PassInput;
  readonly #ops: OperationList;
  readonly #sizes: StepSizes;
  readonly #parameters: ParameterSlots;
  readonly #slots: ActivationSlots;
  readonly #activations: ForwardActivations;
  readonly #isSparse: boolean;

  constructor(
    input: PassInput,
    parts: {
      readonly ops: OperationList;
      readonly sizes: StepSizes;
      readonly parameters: ParameterSlots;
      readonly slots: ActivationSlots;
      readonly activations: ForwardActivations;
      /** Whether rows are read alone; what that moves is added by `withSparseRows`. Default false. */
      readonly isSparse?: boolean;
    },
  ) {
    this.#input = input;
    this.#ops = parts.ops;
    this.#sizes = parts.sizes;
    this.#parameters = parts.parameters;
    this.#slots = parts.slots;
    this.#activations = parts.activations;
    this.#isSparse = parts.isSparse ?? false;
  }

  /** All blocks but the last. */
  blocks(microBatches: readonly number[]): void {
    for (const [index, block] of this.#input.blocks.slice(0, -1).entries()) {
      for (const one of microBatches) {
        if (block.kind === 'row') this.rows(one);
        else this.#activations.put(index + 1, one, this.dense(index, one));
      }
    }
  }

  /** A dense block; what it makes is the caller's to put. */
  dense(block: number, microBatch: number): OperationId {
    const params = this.#parameters.params(block);
    const input = block === 0 ? undefined : this.#activations.activation(block, microBatch);
    const id = this.#ops.compute(
      { kind: 'forward', block, microBatch, offset: params.offset, input: input?.source },
      [...params.after, ...(input?.after ?? [])],
      [...params.claims, ...(input?.claims ?? [])],
      { fieldBytes: this.#ops.fieldBytes(block, microBatch), fences: params.fences },
    );
    if (params.advance) this.#parameters.advanceAfter(block, microBatch);
    if (input !== undefined) this.#activations.used(block, microBatch, id);
    return id;
  }

  /** The head over some micro-batches, to its losses. @param isLast no reverse pass follows */
  head(block: TiledBlock, wave: readonly number[], isLast: boolean): void {
    const index = this.#input.blocks.length - 1;
    const params = this.#parameters.headParams(index);
    for (const microBatch of wave) {
      const input = this.#activations.activation(index, microBatch);
      const id = this.#ops.compute(
        { kind: 'prepare', microBatch, offset: params.offset, input: input.source },
        [...params.after, ...input.after],
        [...params.claims, ...input.claims],
        { fieldBytes: this.#ops.fieldBytes(index, microBatch), fences: params.fences },
      );
      this.#activations.used(index, microBatch, id);
    }
    const tiles = this.#sizes.tileCount(block);
    for (let tile = 0; tile < tiles; tile += 1) {
      const { offset, after, claims, fences } = this.#parameters.tile(block, tile);
      const action = { kind: 'forward-tile', tile, microBatches: wave, offset } as const;
      this.#ops.compute(action, after, claims, { fences });
    }
    for (const microBatch of wave) {
      const end = { kind: 'end', microBatch, ...(isLast && { isLast }) } as const;
      this.loss(microBatch, this.#ops.compute(end, [], []));
    }
  }

  /** The losses that `operation` left, to the host. */
  loss(microBatch: number, operation: OperationId): void {
    const bytes = this.#input.microBatches[microBatch]!.lossLength * 4;
    const action = { kind: 'losses', microBatch, operation } as const;
    const previous = this.losses.slice(-1);
    const loss = this.#ops.add('download', action, { download: bytes }, [operation, ...previous]);
    this.losses.push(loss);
    // They are few bytes, and compute is not to wait for them.
    this.#ops.freeLater({ operation, part: 'losses' }, loss, LOSS_LAG);
  }

  /** The first block's rows of a micro-batch. */
  rows(microBatch: number): void {
    const { offset, claim, after } = this.#slots.claim();
    const { read, upload } = this.#sizes.rowBytes(microBatch);
    const fetched = this.#ops.fetch(
      { kind: 'fetch-rows', microBatch, offset, ...(this.#isSparse && { isSparse: true }) },
      this.#isSparse ? 0 : read,
      upload,
      after,
      claim,
      this.#sizes.groupsOf(0).filter((group) => !this.#sizes.tablesReadAhead.has(group)),
    );
    const id = this.#ops.compute({ kind: 'rows', microBatch, offset }, [fetched], [claim], {
      fieldBytes: this.#ops.fieldBytes(0, microBatch),
    });
    this.#activations.put(1, microBatch, id);
  }
}
