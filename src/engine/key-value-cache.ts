/**
 * @file What each block keeps of one sequence (keys and values of its tokens), at its home.
 *
 * A cached tensor is [limit, width] in one lease of float32 that is as long as the sequence may
 * become; row p is token p's. On the device it is read in place; from the host its filled rows are
 * uploaded when the block needs them. New rows are written behind the filled ones, so nothing that a
 * kernel still reads changes.
 *
 * Owns the leases.
 */
import type { Tensor } from '@tensorflow/tfjs-core';
import { assert } from '../../core/errors.js';
import type { MemoryLease } from '../../tiers/host/host-buffer.js';
import type { TierManager } from '../../tiers/tier-manager.js';

interface CachedTensor {
  readonly lease: MemoryLease;
  readonly width: number;
  readonly tier: 'device' | 'host';
}

export class KeyValueCache {
  readonly #tiers: TierManager;
  readonly #blocks: (readonly CachedTensor[])[] = [];
  /** Most tokens of the sequence. */
  readonly limit: number;

  /**
   * @param homes tier by block
   * @param widths elements per token, by block and tensor
   * @throws HOST_OUT_OF_MEMORY, DEVICE_OUT_OF_MEMORY; nothing stays leased then
   */
  constructor(
    tiers: TierManager,
    homes: readonly ('device' | 'host')[],
    widths: readonly (readonly number[])[],
    limit: number,
  ) {
    this.#tiers = tiers;
    this.limit = limit;
    const leased: CachedTensor[] = [];
    try {
      for (const [block, own] of widths.entries()) {
        const tier = homes[block] ?? 'host';
        const arena = tier === 'host' ? tiers.host : tiers.device.arena;
        assert(arena !== undefined, 'only addressable devices hold a cache');
        const tensors = own.map((width): CachedTensor => {
          const lease = arena.lease(limit * width * 4, `cached tokens of block ${block}`);
          leased.push({ lease, width, tier });
          return { lease, width, tier };
        });
        this.#blocks.push(tensors);
      }
    } catch (error) {
      for (const { lease } of leased) lease.dispose();
      throw error;
    }
  }

  /** The first `length` rows of a block's tensors, on the device; the caller disposes them. */
  async read(block: number, length: number): Promise<Tensor[]> {
    const tensors: Tensor[] = [];
    if (length === 0) return tensors;
    const { device } = this.#tiers;
    try {
      for (const { lease, width, tier } of this.#tensors(block)) {
        const bytes = lease.bytes.subarray(0, length * width * 4);
        if (tier === 'device') {
          tensors.push(device.alias(bytes, [length, width]));
          continue;
        }
        const upload = device.beginUpload([length, width], lease.label);
        try {
          await upload.write(0, bytes, 'float32');
        } catch (error) {
          upload.abort();
          throw error;
        }
        tensors.push(upload.finish());
        this.#tiers.countUpload(bytes.byteLength);
      }
    } catch (error) {
      for (const tensor of tensors) tensor.dispose();
      throw error;
    }
    return tensors;
  }

  /** Writes `added`, the rows from token `first` on, one tensor per cached tensor. */
  async write(block: number, first: number, added: readonly Tensor[]): Promise<void> {
    const cached = this.#tensors(block);
    assert(added.length === cached.length, 'a block adds rows to each of its tensors', { block });
    const writes = cached.map(({ lease, width, tier }, index) => {
      const rows = added[index];
      assert(
        rows !== undefined &&
          rows.size % width === 0 &&
          first * width + rows.size <= this.limit * width,
        'added rows fit the cache',
        { block, first, size: rows?.size ?? 0, width },
      );
      const { buffer, byteOffset } = lease.bytes;
      const target = new Float32Array(buffer, byteOffset + first * width * 4, rows.size);
      // Within the device no link is crossed.
      return tier === 'device'
        ? this.#tiers.device.download(rows, 0, target)
        : this.#tiers.download(rows, 0, target);
    });
    await Promise.all(writes);
  }

  /** Gives the leases back. Idempotent. */
  dispose(): void {
    for (const { lease } of this.#blocks.flat()) lease.dispose();
  }

  #tensors(block: number): readonly CachedTensor[] {
    const tensors = this.#blocks[block];
    assert(tensors !== undefined, 'the block exists', { block });
    return tensors;
  }
}
