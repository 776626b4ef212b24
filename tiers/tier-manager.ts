/**
 * @file Executes moves between the tiers and keeps their ledgers. It decides nothing: what lives
 * where is the plan's business.
 *
 * Stored states (tiers/state-location.ts) are read and written as ranges of elements, in order.
 * In memory a range is one view. On NVMe it is whole, checksummed chunks that pass through the
 * staging buffers, read ahead and written behind, so that no buffer scales with the largest tensor.
 *
 * Owns the staging buffers. Device, host pool and volume are the engine's.
 */
import type { Tensor } from '@tensorflow/tfjs-core';
import { alignDown, alignUp } from '../core/bytes.js';
import { assert } from '../core/errors.js';
import { EventLoopPauses } from '../core/event-loop.js';
import {
  CHUNK_ELEMENTS,
  IO_ALIGNMENT,
  NORM_LEAF_ELEMENTS,
  elementBytes,
  type ElementType,
  type Link,
  type Tier,
} from '../core/types.js';
import type { Device } from './device/device.js';
import type { HostPool } from './host/host-pool.js';
import { StagingPool, type StagingLoan } from './host/staging-pool.js';
import { kernels } from './native/binding.js';
import type { NvmeVolume } from './nvme/volume.js';
import type { NvmeLocation, StateLocation } from './state-location.js';

/** Receives a piece: `offset` elements after the range's start. The view is valid until it returns. */
export type Visit = (offset: number, bytes: Uint8Array) => Promise<void> | void;

/** Fills a piece of the range, `offset` elements after its start. */
export type Fill = (offset: number, target: Uint8Array<SharedArrayBuffer>) => Promise<void> | void;

/** Lets a transfer take turns with others on the links that they share. */
export interface Turns {
  /** Runs `body`, which moves `bytes` on `link`, when it is this transfer's turn. */
  take<T>(link: Link, bytes: number, body: () => Promise<T>): Promise<T>;
}

/** Nobody else moves anything. */
const NO_TURNS: Turns = { take: (_link, _bytes, body) => body() };

/** How a range is written. */
export interface WriteOptions {
  readonly turns?: Turns;
  /** `add`: new value = old value + filled value, in float32. Default `replace`. */
  readonly mode?: 'replace' | 'add';
  /** Whether elements of a partly written chunk outside the range must survive. Default true. */
  readonly preserve?: boolean;
  /** Elements of the stored state; needed with `onWritten`. */
  readonly totalLength?: number;
  /** Called after each piece is complete with all bytes of whole gradient-norm leaves around it
   * (`firstElement` is a multiple of 4096), so that the last call for a leaf sees its final value. */
  readonly onWritten?: (firstElement: number, bytes: Uint8Array<SharedArrayBuffer>) => void;
}

interface ChunkSpan {
  readonly index: number;
  /** Elements of the chunk that the range covers: `from … to` within the chunk. */
  readonly from: number;
  readonly to: number;
  /** Elements that the stored chunk holds. */
  readonly chunkLength: number;
  /** Elements from the range's start to `from`. */
  readonly offset: number;
}

function chunkSpans(location: NvmeLocation, bytesPer: number, start: number, count: number) {
  const total = location.byteLength / bytesPer;
  assert(start >= 0 && start + count <= total, 'range lies inside the stored state', {
    start,
    count,
    total,
  });
  const spans: ChunkSpan[] = [];
  for (let position = start; position < start + count;) {
    const index = Math.floor(position / CHUNK_ELEMENTS);
    const first = index * CHUNK_ELEMENTS;
    const chunkLength = Math.min(CHUNK_ELEMENTS, total - first);
    const to = Math.min(start + count - first, chunkLength);
    spans.push({ index, from: position - first, to, chunkLength, offset: position - start });
    position = first + to;
  }
  return spans;
}

export class TierManager {
  readonly device: Device;
  readonly host: HostPool;
  readonly volume: NvmeVolume | undefined;
  /** Buffers of reads; whoever holds one gets on without waiting for a write. */
  readonly staging: StagingPool;
  /** Buffers of writes. */
  readonly spillStaging: StagingPool;
  readonly #moved = { upload: 0, download: 0 };
  /** NVMe bytes that workers moved through their own rings. */
  readonly #workerMoved = { nvme_read: 0, nvme_write: 0 };

  constructor(parts: {
    device: Device;
    host: HostPool;
    volume: NvmeVolume | undefined;
    stagingCount: number;
    spillStagingCount: number;
  }) {
    this.device = parts.device;
    this.host = parts.host;
    this.volume = parts.volume;
    this.staging = new StagingPool(parts.host, parts.stagingCount);
    this.spillStaging = new StagingPool(parts.host, parts.spillStagingCount);
  }

  /** Gives the staging memory back. Idempotent. */
  dispose(): void {
    this.staging.dispose();
    this.spillStaging.dispose();
  }

  /** Bytes moved on each link since creation. */
  get bytesMoved(): Record<Link, number> {
    return {
      ...this.#moved,
      nvme_read: (this.volume?.bytesRead ?? 0) + this.#workerMoved.nvme_read,
      nvme_write: (this.volume?.bytesWritten ?? 0) + this.#workerMoved.nvme_write,
    };
  }

  /** Highest bytes held in each tier since creation. */
  get peakBytes(): Record<Tier, number> {
    return {
      device: this.device.ledger.peakBytes,
      host: this.host.peakBytes,
      nvme: this.volume?.peakBytes ?? 0,
    };
  }

  /** Bytes held in each tier now. */
  get heldBytes(): Record<Tier, number> {
    return {
      device: this.device.ledger.liveBytes,
      host: this.host.liveBytes,
      nvme: this.volume?.liveBytes ?? 0,
    };
  }

  /** Adds what a worker moved through its own ring. */
  countWorkerIo(readBytes: number, writtenBytes: number): void {
    this.#workerMoved.nvme_read += readBytes;
    this.#workerMoved.nvme_write += writtenBytes;
  }

  /** Adds bytes that a caller uploaded from the host tier by the device's own methods. */
  countUpload(bytes: number): void {
    this.#moved.upload += bytes;
  }

  /** Copies elements of a float32 tensor to host memory, counted. */
  async download(
    tensor: Tensor,
    offset: number,
    target: Float32Array,
    turns: Turns = NO_TURNS,
  ): Promise<void> {
    await turns.take('download', target.byteLength, () =>
      this.device.download(tensor, offset, target),
    );
    this.#moved.download += target.byteLength;
  }

  /**
   * Streams elements `start … start + count` of a state in ascending order.
   *
   * @throws STATE_CORRUPT, IO_ERROR, IO_SHORT; whatever `visit` throws. No staging buffer stays lent
   */
  async read(
    location: StateLocation,
    type: ElementType,
    start: number,
    count: number,
    visit: Visit,
    turns: Turns = NO_TURNS,
  ): Promise<void> {
    const bytesPer = elementBytes(type);
    if (location.kind === 'memory') {
      await visit(0, location.bytes.subarray(start * bytesPer, (start + count) * bytesPer));
      return;
    }
    const spans = chunkSpans(location, bytesPer, start, count);
    const inFlight: { span: ChunkSpan; loan: StagingLoan; done: Promise<void> }[] = [];
    let next = 0;
    const begin = (loan: StagingLoan): void => {
      const span = spans[next];
      assert(span !== undefined, 'a read begins only for a span that is left');
      next += 1;
      const done = this.#readChunk(location, span, bytesPer, loan.buffers[0], turns);
      done.catch(() => undefined); // Awaited below; marks it handled while earlier spans are visited.
      inFlight.push({ span, loan, done });
    };
    try {
      while (next < spans.length || inFlight.length > 0) {
        if (inFlight.length === 0) begin(await this.staging.acquire(1));
        while (next < spans.length) {
          const loan = this.staging.tryAcquire(1);
          if (loan === undefined) break;
          begin(loan);
        }
        const head = inFlight[0];
        assert(head !== undefined, 'a read is in flight');
        await head.done;
        const { span } = head;
        await visit(
          span.offset,
          bufferOf(head.loan).subarray(span.from * bytesPer, span.to * bytesPer),
        );
        head.loan.release();
        inFlight.shift();
      }
    } finally {
      await Promise.allSettled(inFlight.map((entry) => entry.done));
      for (const entry of inFlight) entry.loan.release();
    }
  }

  /**
   * Writes elements `start … start + count` of a state, asking `fill` for them in ascending order.
   *
   * @throws IO_ERROR, IO_SHORT, NVME_FULL, STATE_CORRUPT; whatever `fill` throws. The range's
   *   content is then undefined, no request stays in flight and no staging buffer lent
   */
  async write(
    location: StateLocation,
    type: ElementType,
    start: number,
    count: number,
    fill: Fill,
    options: WriteOptions = {},
  ): Promise<void> {
    assert(options.mode !== 'add' || type === 'float32', 'only float32 states are added to');
    if (location.kind === 'memory') {
      await this.#writeMemory(location.bytes, elementBytes(type), start, count, fill, options);
    } else {
      await this.#writeNvme(location, elementBytes(type), start, count, fill, options);
    }
  }

  async #writeMemory(
    bytes: Uint8Array<SharedArrayBuffer>,
    bytesPer: number,
    start: number,
    count: number,
    fill: Fill,
    options: WriteOptions,
  ): Promise<void> {
    const loan = options.mode === 'add' ? await this.spillStaging.acquire(1) : undefined;
    const total = options.totalLength ?? bytes.byteLength / bytesPer;
    const pauses = new EventLoopPauses();
    try {
      // Chunk by chunk, though nothing is transferred, so that the event loop turns in between.
      for (let from = start; from < start + count;) {
        const to = Math.min(alignUp(from + 1, CHUNK_ELEMENTS), start + count);
        const target = bytes.subarray(from * bytesPer, to * bytesPer);
        if (loan === undefined) {
          await fill(from - start, target);
        } else {
          const piece = bufferOf(loan).subarray(0, target.byteLength);
          await fill(from - start, piece);
          kernels().accumulate(floats(target), floats(piece));
        }
        if (options.onWritten !== undefined) {
          const first = alignDown(from, NORM_LEAF_ELEMENTS);
          const last = Math.min(alignUp(to, NORM_LEAF_ELEMENTS), total);
          options.onWritten(first, bytes.subarray(first * bytesPer, last * bytesPer));
        }
        from = to;
        await pauses.pause();
      }
    } finally {
      loan?.release();
    }
  }

  async #writeNvme(
    location: NvmeLocation,
    bytesPer: number,
    start: number,
    count: number,
    fill: Fill,
    options: WriteOptions,
  ): Promise<void> {
    const volume = this.volume;
    assert(volume !== undefined, 'a state on NVMe has a volume');
    const pending = new Set<Promise<void>>();
    const failures: unknown[] = [];
    try {
      for (const span of chunkSpans(location, bytesPer, start, count)) {
        if (failures.length > 0) break;
        const loan = await this.spillStaging.acquire(options.mode === 'add' ? 2 : 1);
        try {
          const chunk = await this.#composeChunk(location, span, bytesPer, loan, fill, options);
          // The write runs behind; its buffer comes back when it is done.
          const writing = (options.turns ?? NO_TURNS)
            .take('nvme_write', chunk.byteLength, () =>
              volume.writeChunk(location, span.index, chunk),
            )
            .catch((error: unknown) => void failures.push(error))
            .finally(() => {
              loan.release();
              pending.delete(writing);
            });
          pending.add(writing);
        } catch (error) {
          loan.release();
          throw error;
        }
      }
    } finally {
      await Promise.all(pending);
    }
    if (failures.length > 0) throw failures[0];
  }

  /** The chunk's new bytes, padded with zeros, in the loan's first buffer. */
  async #composeChunk(
    location: NvmeLocation,
    span: ChunkSpan,
    bytesPer: number,
    loan: StagingLoan,
    fill: Fill,
    options: WriteOptions,
  ): Promise<Uint8Array<SharedArrayBuffer>> {
    const chunk = bufferOf(loan).subarray(0, alignUp(span.chunkLength * bytesPer, IO_ALIGNMENT));
    const range = chunk.subarray(span.from * bytesPer, span.to * bytesPer);
    const partial = span.from > 0 || span.to < span.chunkLength;
    const add = options.mode === 'add';
    if (add || (partial && (options.preserve ?? true))) {
      await this.#readChunk(location, span, bytesPer, bufferOf(loan), options.turns ?? NO_TURNS);
    }
    if (add) {
      const added = loan.buffers[1];
      assert(added !== undefined, 'adding uses a second buffer');
      const piece = added.subarray(0, range.byteLength);
      await fill(span.offset, piece);
      kernels().accumulate(floats(range), floats(piece));
    } else {
      await fill(span.offset, range);
    }
    chunk.fill(0, span.chunkLength * bytesPer);
    if (options.onWritten !== undefined) {
      const first = span.index * CHUNK_ELEMENTS;
      options.onWritten(first, chunk.subarray(0, span.chunkLength * bytesPer));
    }
    return chunk;
  }

  async #readChunk(
    location: NvmeLocation,
    span: ChunkSpan,
    bytesPer: number,
    buffer: Uint8Array<SharedArrayBuffer> | undefined,
    turns: Turns,
  ): Promise<void> {
    const { volume } = this;
    assert(volume !== undefined && buffer !== undefined, 'a state on NVMe has volume and buffer');
    const padded = alignUp(span.chunkLength * bytesPer, IO_ALIGNMENT);
    await turns.take('nvme_read', padded, () =>
      volume.readChunk(location, span.index, buffer.subarray(0, padded)),
    );
  }
}

function bufferOf(loan: StagingLoan): Uint8Array<SharedArrayBuffer> {
  const buffer = loan.buffers[0];
  assert(buffer !== undefined, 'a loan holds a buffer');
  return buffer;
}

function floats(bytes: Uint8Array<SharedArrayBuffer>): Float32Array<SharedArrayBuffer> {
  return new Float32Array(bytes.buffer, bytes.byteOffset, bytes.byteLength / 4);
}
