/**
 * @file What each block keeps of one sequence (keys and values of its tokens), at its home.
 *
 * A cached tensor is [limit, width] in one lease of float32 that is as long as the sequence may
 * become; row p is token p's. On the device it is read in place; from the host its filled rows are
 * fetched to the device's region ahead of the block. New rows are written behind the filled ones, so
 * nothing that a kernel still reads changes.
 *
 * Owns the leases.
 */
import type { Tensor } from '@tensorflow/tfjs-core';
import { assert } from '../../core/errors.js';
import type { MemoryLease } from '../../tiers/host/host-buffer.js';
import { alignUp } from '../../core/bytes.js';
import { settleAll } from '../../core/settle-all.js';
import { CHUNK_ELEMENTS, IO_ALIGNMENT } from '../../core/types.js';
import type { DeviceRegion } from '../../tiers/device/device.js';
import type { TierManager, Turns } from '../../tiers/tier-manager.js';
import { tensorBytes } from '../plan/tensor-bytes.js';

/** What is uploaded at a time, so that fetches take turns. */
const PIECE_BYTES = CHUNK_ELEMENTS * 4;

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

  /**
   * The first `length` rows of a block's tensors on the device; the caller disposes them.
   *
   * @param offset where `fetch` put them; undefined where they live on the device
   */
  views(block: number, length: number, region: DeviceRegion, offset: number | undefined): Tensor[] {
    if (length === 0) return [];
    let start = offset ?? 0;
    return this.#tensors(block).map(({ lease, width, tier }) => {
      if (tier === 'device') {
        const bytes = lease.bytes.subarray(0, length * width * 4);
        return this.#tiers.device.alias(bytes, [length, width]);
      }
      assert(offset !== undefined, 'what is on the host has been fetched', { block });
      const view = region.view(start, [length, width], 'float32');
      start += tensorBytes(this.limit * width);
      return view;
    });
  }

  /** Copies the first `length` rows of a block's tensors from the host to `offset` of a region. */
  async fetch(
    block: number,
    length: number,
    region: DeviceRegion,
    offset: number,
    turns: Turns,
  ): Promise<void> {
    let start = offset;
    for (const { lease, width } of this.#tensors(block)) {
      const bytes = lease.bytes.subarray(0, length * width * 4);
      for (let from = 0; from < bytes.byteLength; from += PIECE_BYTES) {
        const piece = bytes.subarray(from, from + PIECE_BYTES);
        const target = start + from;
        await turns.take('upload', piece.byteLength, () =>
          region.write(target, piece, 'float32', 'float32'),
        );
        this.#tiers.countUpload(piece.byteLength);
      }
      start += tensorBytes(this.limit * width);
    }
  }

  /** Writes `added`, the rows from token `first` on, one tensor per cached tensor. */
  async write(block: number, first: number, added: readonly Tensor[], turns: Turns): Promise<void> {
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
        : this.#tiers.download(rows, 0, target, turns);
    });
    await settleAll(writes);
  }

  /** Bytes leased on the device. */
  get deviceBytes(): number {
    return this.#blocks
      .flat()
      .filter(({ tier }) => tier === 'device')
      .reduce((sum, { lease }) => sum + alignUp(lease.bytes.byteLength, IO_ALIGNMENT), 0);
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
