/**
 * @file Memory of host and device, and copies between the two, by the ways that transfers take.
 *
 * Comes in quarters, each touched before it counts: where memory is slow the first time, there are
 * fewer. Owns all of it.
 */
import * as tf from '@tensorflow/tfjs-core';
import type { Tensor } from '@tensorflow/tfjs-core';
import { assert } from '../../../core/errors.js';
import { NORM_LEAF_ELEMENTS } from '../../../core/types.js';
import type { Device, DeviceRegion } from '../../../tiers/device/device.js';
import type { MemoryLease } from '../../../tiers/host/host-buffer.js';
import type { HostPool } from '../../../tiers/host/host-pool.js';
import { kernels } from '../../../tiers/native/binding.js';
import { TierManager, type Turns } from '../../../tiers/tier-manager.js';
import { PIECE_BYTES } from '../../plan/simulated-link.js';
import type { Deadline } from './deadline.js';

/** What is copied as one, at most. */
export const QUARTER_BYTES = 32 * PIECE_BYTES;

/** With what they are copied to, and all else that runs beside them, four are more than the largest
 * cache that we met (260 MiB). */
const QUARTERS = 4;

/** Bytes of the device that an area takes. */
export const COPY_BYTES = 2 * QUARTERS * QUARTER_BYTES;

export class CopyArea {
  readonly #device: Device;
  readonly #tiers: TierManager;
  readonly #lease: MemoryLease;
  readonly #region: DeviceRegion;
  /** Of the quarters that count. */
  readonly #tensors: Tensor[] = [];
  readonly #leaves = new Float64Array(QUARTER_BYTES / 4 / NORM_LEAF_ELEMENTS);

  private constructor(device: Device, arena: HostPool) {
    this.#device = device;
    const buffers = { stagingCount: 1, spillStagingCount: 2 };
    this.#tiers = new TierManager({ device, host: arena, volume: undefined, ...buffers });
    this.#lease = arena.lease(QUARTERS * QUARTER_BYTES, 'copies');
    this.#region = device.reserve(QUARTERS * QUARTER_BYTES, 'copies');
  }

  /** @param until one quarter is there in any case @throws DEVICE_OUT_OF_MEMORY, HOST_OUT_OF_MEMORY */
  static async create(device: Device, arena: HostPool, until: Deadline): Promise<CopyArea> {
    const area = new CopyArea(device, arena);
    for (let quarter = 0; quarter < QUARTERS && !(quarter > 0 && until.isOver); quarter += 1) {
      const at = quarter * QUARTER_BYTES;
      area.#lease.bytes.fill(1, at, at + QUARTER_BYTES);
      const filled = device.run(() => tf.fill([QUARTER_BYTES / 4], 2 ** -7));
      // Its own, as gradients are: copies do not wait for kernels that are launched later.
      area.#tensors.push(device.own(filled));
      await area.upload(at, QUARTER_BYTES);
      await device.computed();
    }
    return area;
  }

  /** Bytes on either side. */
  get byteLength(): number {
    return this.#tensors.length * QUARTER_BYTES;
  }

  /** Copies bytes from `at` on. */
  upload(at: number, bytes: number): Promise<void> {
    const source = this.#lease.bytes.subarray(at, at + bytes);
    return this.#region.write(at, source, 'float32', 'float32');
  }

  /** Copies bytes from `at` on, which lie in one quarter. */
  download(at: number, bytes: number): Promise<void> {
    const { tensor, offset } = this.#source(at, bytes);
    return this.#device.download(
      tensor,
      offset,
      floats(this.#lease.bytes.subarray(at, at + bytes)),
    );
  }

  /**
   * Brings a gradient home as the engine does.
   *
   * @param at a multiple of the bytes of a norm leaf; bytes from there on lie in one quarter
   * @returns seconds of copies, and of the host between them
   */
  async gradient(
    at: number,
    bytes: number,
    mode: 'replace' | 'add',
  ): Promise<{ copied: number; host: number }> {
    const { tensor, offset } = this.#source(at, bytes);
    const home = this.#lease.bytes.subarray(at, at + bytes);
    let copiedMs = 0;
    const turns: Turns = {
      take: async (_link, _bytes, body) => {
        const start = performance.now();
        const result = await body();
        copiedMs += performance.now() - start;
        return result;
      },
    };
    const start = performance.now();
    await this.#tiers.write(
      { kind: 'memory', tier: 'host', bytes: home },
      'float32',
      0,
      bytes / 4,
      (from, target) => this.#tiers.download(tensor, offset + from, floats(target), turns),
      {
        mode,
        onWritten: (first, written) => {
          const from = first / NORM_LEAF_ELEMENTS;
          const count = Math.ceil(written.byteLength / 4 / NORM_LEAF_ELEMENTS);
          const leaves = this.#leaves.subarray(from, from + count);
          kernels().squaredNormLeaves(floats(written), leaves);
        },
      },
    );
    const hostMs = performance.now() - start - copiedMs;
    return { copied: copiedMs / 1000, host: hostMs / 1000 };
  }

  dispose(): void {
    for (const tensor of this.#tensors.splice(0)) tensor.dispose();
    this.#tiers.dispose();
    this.#region.dispose();
    this.#lease.dispose();
  }

  #source(at: number, bytes: number): { tensor: Tensor; offset: number } {
    const within = at % QUARTER_BYTES;
    const tensor = this.#tensors[(at - within) / QUARTER_BYTES];
    assert(tensor !== undefined && within + bytes <= QUARTER_BYTES, 'bytes lie in one quarter');
    return { tensor, offset: within / 4 };
  }
}

function floats(bytes: Uint8Array): Float32Array {
  return new Float32Array(bytes.buffer, bytes.byteOffset, bytes.byteLength / 4);
}
