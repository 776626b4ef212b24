/**
 * @file Activations of a step, and their gradients, between the operation that makes them and those
 * that use them: on the device, or spilled and fetched again.
 *
 * A pass of one micro-batch hands them from block to block on the device; checkpoints are spilled
 * beside. With several micro-batches each waits in its own place.
 */
import { assert } from '../../core/errors.js';
import type { ActivationSlots } from './activation-slots.js';
import type { ForwardActivations } from './forward-pass.js';
import type { OperationList } from './operation-list.js';
import type { StepInput } from './step-input.js';
import type { OperationId, Source } from './step-plan.js';
import { chunkBytes, writeBytes } from './transfer-bytes.js';

/** An activation, or its gradient, between two compute operations. */
interface Held {
  /** The compute operation whose output it still is, on the device. */
  operation: OperationId | undefined;
  /** Its spill to the home; undefined while the home is the device. */
  spill: OperationId | undefined;
}

export class HeldActivations implements ForwardActivations {
  readonly #input: StepInput;
  readonly #ops: OperationList;
  readonly #slots: ActivationSlots;
  /** Inputs of blocks by `block/microBatch`. */
  readonly #held = new Map<string, Held>();

  constructor(input: StepInput, ops: OperationList, slots: ActivationSlots) {
    this.#input = input;
    this.#ops = ops;
    this.#slots = slots;
  }

  /** The gradient of the input of `block` has been used. */
  forget(block: number, microBatch: number): void {
    this.#held.delete(`${block}/${microBatch}`);
  }

  /** Where block `block` finds its input (or, in the reverse pass, the gradient of its output). */
  activation(
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
    const { offset, claim, after } = this.#slots.claim();
    const action = { kind: 'fetch-activation', block, microBatch, offset } as const;
    const fetched = this.#ops.fetch(action, read, length * 4, [held.spill, ...after], claim);
    return { source: { kind: 'region', offset }, after: [fetched], claims: [claim] };
  }

  /** `operation` made the input of `block`: leaves it on the device, or spills it. */
  put(block: number, microBatch: number, operation: OperationId): void {
    const { blocks } = this.#input;
    const held: Held = { operation, spill: undefined };
    this.#held.set(`${block}/${microBatch}`, held);
    // A last dense block uses its input once, at once.
    const usedOnce = block === blocks.length - 1 && blocks[block]!.kind === 'dense';
    if (this.#homeOfActivation(block, microBatch) === 'device') return;
    if (this.#carries && usedOnce) return;
    this.#spill(block, microBatch, held, operation);
    // Where activations are carried, the next operation takes it from the device; see `used`.
    if (!this.#carries) this.#letGo(block, microBatch);
  }

  /** The gradient of the input of `block` takes the input's place. */
  replace(block: number, microBatch: number, operation: OperationId): void {
    const before = this.#held.get(`${block}/${microBatch}`);
    if (before?.operation !== undefined) {
      assert(before.spill === undefined, 'what was spilled has left the device');
      this.#ops.drop({ operation: before.operation, part: 'activation' }, operation);
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

  /** The forward pass is done with the input of `block`. */
  used(block: number, microBatch: number): void {
    this.#letGo(block, microBatch);
  }

  /** The input of `block` is not needed on the device for now; a spilled one may leave it. */
  #letGo(block: number, microBatch: number): void {
    const held = this.#held.get(`${block}/${microBatch}`)!;
    if (held.operation === undefined || held.spill === undefined) return;
    this.#ops.freeLater({ operation: held.operation, part: 'activation' }, held.spill);
    held.operation = undefined;
  }

  /** Whether an activation is handed from one operation to the next on the device. */
  get #carries(): boolean {
    const { plan, microBatches } = this.#input;
    return plan.order === 'horizontal' || microBatches.length === 1;
  }

  #spill(block: number, microBatch: number, held: Held, operation: OperationId): void {
    const length = this.#input.microBatches[microBatch]!.activationLengths[block]!;
    const action = { kind: 'spill-activation', block, microBatch, operation } as const;
    const previous = held.spill === undefined ? [] : [held.spill];
    const nvme = this.#homeOfActivation(block, microBatch) === 'nvme';
    const bytes = nvme
      ? writeBytes(this.#input.slotLengths[block]!, 4, 0, length, { add: false, preserve: false })
      : undefined;
    held.spill = this.#ops.write(action, length * 4, bytes, [operation, ...previous]);
  }

  #homeOfActivation(block: number, microBatch: number) {
    const { plan } = this.#input;
    const slot = plan.order === 'vertical' ? microBatch : 0;
    return plan.activationTiers[block]![slot]!;
  }
}
