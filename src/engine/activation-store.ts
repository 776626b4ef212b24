/**
 * @file Activation checkpoints that are away from the device: the input of each block for each
 * micro-batch, on host or NVMe where the plan says so.
 *
 * A place (b, m) holds the input of block b until its reverse pass; then the gradient with respect
 * to that input, which has the same shape, takes its place until block b-1 has used it. Places are
 * made for the largest batch.
 *
 * Owns the leases of its places.
 */
import type { Tensor } from '@tensorflow/tfjs-core';
import { assert } from '../../core/errors.js';
import type { DeviceRegion } from '../../tiers/device/device.js';
import type { MemoryLease } from '../../tiers/host/host-buffer.js';
import type { StateLocation } from '../../tiers/state-location.js';
import type { TierManager, Turns } from '../../tiers/tier-manager.js';
import { scratchName, type MemoryPlan } from '../plan/placement.js';

function floats(bytes: Uint8Array): Float32Array {
  return new Float32Array(bytes.buffer, bytes.byteOffset, bytes.byteLength / 4);
}

export class ActivationStore {
  readonly #tiers: TierManager;
  readonly #locations: (StateLocation | undefined)[][] = [];
  readonly #leases: MemoryLease[] = [];

  /**
   * @param slotBytes bytes of a place of each block at the largest shape
   * @throws HOST_OUT_OF_MEMORY; nothing stays leased then
   */
  constructor(tiers: TierManager, plan: MemoryPlan, slotBytes: (block: number) => number) {
    this.#tiers = tiers;
    try {
      for (const [block, places] of plan.activationTiers.entries()) {
        this.#locations.push(
          places.map((tier, microBatch) => {
            const name = scratchName.activation(block, microBatch);
            if (tier === 'nvme') return tiers.volume?.scratch(name);
            if (tier === 'device') return undefined;
            const lease = tiers.host.lease(slotBytes(block), name);
            this.#leases.push(lease);
            return { kind: 'memory', tier: 'host', bytes: lease.bytes };
          }),
        );
      }
    } catch (error) {
      this.dispose();
      throw error;
    }
  }

  /** Copies a tensor to its place. The tensor stays the caller's. */
  async spill(block: number, microBatch: number, tensor: Tensor, turns: Turns): Promise<void> {
    await this.#tiers.write(
      this.#location(block, microBatch),
      'float32',
      0,
      tensor.size,
      (offset, target) => this.#tiers.download(tensor, offset, floats(target), turns),
      { preserve: false, turns },
    );
  }

  /** Copies `length` elements of a place to `byteOffset` of a region. */
  async fetch(
    block: number,
    microBatch: number,
    length: number,
    region: DeviceRegion,
    byteOffset: number,
    turns: Turns,
  ): Promise<void> {
    await this.#tiers.read(
      this.#location(block, microBatch),
      'float32',
      0,
      length,
      async (offset, bytes) => {
        const target = byteOffset + offset * 4;
        await turns.take('upload', bytes.byteLength, () =>
          region.write(target, bytes, 'float32', 'float32'),
        );
        this.#tiers.countUpload(bytes.byteLength);
      },
      turns,
    );
  }

  /** Gives all leases back. Idempotent. */
  dispose(): void {
    for (const lease of this.#leases.splice(0)) lease.dispose();
  }

  #location(block: number, microBatch: number): StateLocation {
    const location = this.#locations[block]?.[microBatch];
    assert(location !== undefined, 'the activation has a place away from the device', {
      block,
      microBatch,
    });
    return location;
  }
}
