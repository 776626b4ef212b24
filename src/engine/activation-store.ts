/**
 * @file Activation checkpoints: the input of each block for each micro-batch, where the plan says.
 *
 * A slot (b, m) holds the input of block b until its reverse pass; then the gradient with respect
 * to that input, which has the same shape, takes its place until block b-1 has used it. A slot on
 * the device is the tensor itself; on host and NVMe it is reserved memory of the largest shape.
 *
 * Owns the tensors and leases of its slots.
 */
import type { Tensor } from '@tensorflow/tfjs-core';
import { assert } from '../../core/errors.js';
import type { MemoryLease } from '../../tiers/host/host-buffer.js';
import type { StateLocation } from '../../tiers/state-location.js';
import type { TierManager } from '../../tiers/tier-manager.js';
import { scratchName, type MemoryPlan } from '../plan/placement.js';

interface Slot {
  readonly location: StateLocation | undefined;
  readonly lease: MemoryLease | undefined;
  tensor: Tensor | undefined;
  shape: readonly number[] | undefined;
}

/** A tensor for the caller to read; `release` frees it unless the slot still owns it. */
export interface HeldTensor {
  readonly tensor: Tensor;
  release(): void;
}

function floats(bytes: Uint8Array): Float32Array {
  return new Float32Array(bytes.buffer, bytes.byteOffset, bytes.byteLength / 4);
}

export class ActivationStore {
  readonly #tiers: TierManager;
  readonly #slots: Slot[][];

  /**
   * @param slotBytes bytes of a slot of each block at the largest shape
   * @throws HOST_OUT_OF_MEMORY; nothing stays leased then
   */
  constructor(tiers: TierManager, plan: MemoryPlan, slotBytes: (block: number) => number) {
    this.#tiers = tiers;
    this.#slots = [];
    try {
      for (const [block, places] of plan.activationTiers.entries()) {
        const slots: Slot[] = [];
        this.#slots.push(slots);
        for (const [microBatch, tier] of places.entries()) {
          const name = scratchName.activation(block, microBatch);
          const lease = tier === 'host' ? tiers.host.lease(slotBytes(block), name) : undefined;
          const location: StateLocation | undefined =
            tier === 'nvme'
              ? tiers.volume?.scratch(name)
              : lease && { kind: 'memory', tier: 'host', bytes: lease.bytes };
          slots.push({ location, lease, tensor: undefined, shape: undefined });
        }
      }
    } catch (error) {
      this.dispose();
      throw error;
    }
  }

  /** Stores `tensor` in slot (block, microBatch) and takes ownership of it, replacing what was there. */
  async put(block: number, microBatch: number, tensor: Tensor): Promise<void> {
    const slot = this.#slot(block, microBatch);
    slot.tensor?.dispose();
    slot.tensor = undefined;
    slot.shape = tensor.shape;
    if (slot.location === undefined) {
      slot.tensor = tensor;
      return;
    }
    try {
      await this.#tiers.write(
        slot.location,
        'float32',
        0,
        tensor.size,
        (offset, target) => this.#tiers.download(tensor, offset, floats(target)),
        { preserve: false },
      );
    } finally {
      tensor.dispose();
    }
  }

  /** The tensor of a slot, on the device. */
  async get(block: number, microBatch: number): Promise<HeldTensor> {
    const slot = this.#slot(block, microBatch);
    if (slot.tensor !== undefined) return { tensor: slot.tensor, release: () => undefined };
    const { location, shape } = slot;
    assert(location !== undefined && shape !== undefined, 'the slot is filled', {
      block,
      microBatch,
    });
    const size = shape.reduce((product, length) => product * length, 1);
    const upload = this.#tiers.device.beginUpload(shape, 'activation');
    try {
      await this.#tiers.read(location, 'float32', 0, size, async (offset, bytes) => {
        await upload.write(offset, bytes, 'float32');
        this.#tiers.countUpload(bytes.byteLength);
      });
    } catch (error) {
      upload.abort();
      throw error;
    }
    const tensor = upload.finish();
    return { tensor, release: () => tensor.dispose() };
  }

  /** The tensor of a slot for the caller to own; the slot is empty afterwards. */
  async take(block: number, microBatch: number): Promise<Tensor> {
    const { tensor } = await this.get(block, microBatch);
    const slot = this.#slot(block, microBatch);
    slot.tensor = undefined;
    slot.shape = undefined;
    return tensor;
  }

  /** Empties a slot; its memory stays reserved. */
  clear(block: number, microBatch: number): void {
    const slot = this.#slot(block, microBatch);
    slot.tensor?.dispose();
    slot.tensor = undefined;
    slot.shape = undefined;
  }

  /** Frees all tensors and leases. Idempotent. */
  dispose(): void {
    for (const slot of this.#slots.flat()) {
      slot.tensor?.dispose();
      slot.tensor = undefined;
      slot.lease?.dispose();
    }
    this.#slots.length = 0;
  }

  #slot(block: number, microBatch: number): Slot {
    const slot = this.#slots[block]?.[microBatch];
    assert(slot !== undefined, 'the plan has a slot for it', { block, microBatch });
    return slot;
  }
}
