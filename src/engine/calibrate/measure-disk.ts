/**
 * @file Measures the folders of the NVMe tier: reads, writes and both at once, over block sizes and
 * depths, each block with its checksum as the engine's chunks have it.
 *
 * Files are made anew, written once (the first write into fallocated space is slow) and removed.
 */
import { randomBytes } from 'node:crypto';
import { mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { CHUNK_ELEMENTS } from '../../../core/types.js';
import type { MemoryArena } from '../../../tiers/host/host-buffer.js';
import { kernels } from '../../../tiers/native/binding.js';
import type { IoBackend, IoFile } from '../../../tiers/nvme/io-backend.js';
import type { DiskCosts } from './cost-store.js';

/** One measurement; bytes per second of reads and writes together. */
export interface DiskRate {
  readonly mode: 'read' | 'write' | 'mixed';
  readonly blockBytes: number;
  readonly depth: number;
  readonly bytesPerSecond: number;
}

/** What was measured, and the costs at the engine's own block size and depth. */
export interface DiskMeasurement {
  readonly rates: readonly DiskRate[];
  readonly costs: DiskCosts;
  /** Whether the page cache was bypassed; rates are the cache's where not. */
  readonly direct: boolean;
}

/** The engine's: one chunk of float32, and the pieces that a link admits. */
const CHUNK_BYTES = CHUNK_ELEMENTS * 4;
const DEPTH = 8;

const BLOCK_BYTES = [2 ** 18, CHUNK_BYTES, 4 * CHUNK_BYTES];
const DEPTHS = [1, 4, DEPTH];
const MODES = ['read', 'write', 'mixed'] as const;

/** Of all folders together. */
const FILE_BYTES = 2 ** 28;

/** Of one measurement. */
const RATE_SECONDS = 0.2;

/**
 * Measures for about six seconds unless `rateSeconds` (0.2 each) says otherwise; takes 32 MiB of the arena and 256 MiB of the folders.
 *
 * @throws NVME_FULL, PATH_UNWRITABLE, IO_ERROR; nothing is left behind
 */
export async function measureDisk(
  folders: readonly string[],
  backend: IoBackend,
  arena: MemoryArena,
  rateSeconds: number = RATE_SECONDS,
): Promise<DiskMeasurement> {
  const name = `spillway-tune-${process.pid}-${randomBytes(4).toString('hex')}`;
  const paths = folders.map((folder) => join(folder, name));
  const lease = arena.lease(DEPTH * Math.max(...BLOCK_BYTES), 'disk');
  const files: IoFile[] = [];
  try {
    lease.bytes.fill(1);
    for (const folder of folders) await mkdir(folder, { recursive: true });
    for (const path of paths) files.push(await backend.open(path));
    const disk = new Disk(backend, files, lease.bytes);
    await disk.prepare();
    const rates: DiskRate[] = [];
    for (const blockBytes of BLOCK_BYTES) {
      for (const depth of DEPTHS) {
        for (const mode of MODES)
          rates.push(await disk.rate({ mode, blockBytes, depth }, rateSeconds));
      }
    }
    return { rates, costs: costsOf(rates), direct: files.every(({ direct }) => direct) };
  } finally {
    for (const file of files) await backend.close(file);
    for (const path of paths) await rm(path, { force: true });
    lease.dispose();
  }
}

/** A mixed rate between that of a disk that does both at once and of one that does either. */
export function costsOf(rates: readonly DiskRate[]): DiskCosts {
  const rateOf = (mode: DiskRate['mode']): number => {
    const rate = rates.find(
      (one) => one.mode === mode && one.blockBytes === CHUNK_BYTES && one.depth === DEPTH,
    );
    return rate?.bytesPerSecond ?? NaN;
  };
  const [read, write, mixed] = [rateOf('read'), rateOf('write'), rateOf('mixed')];
  // Seconds of a byte read and a byte written, apart and together.
  const [slower, faster] = [Math.max(1 / read, 1 / write), Math.min(1 / read, 1 / write)];
  const sharing = (2 / mixed - slower) / faster;
  return {
    nvmeRead: { bytesPerSecond: read, secondsPerPiece: 0 },
    nvmeWrite: { bytesPerSecond: write, secondsPerPiece: 0 },
    nvmeSharing: Math.min(1, Math.max(0, sharing)),
  };
}

class Disk {
  readonly #backend: IoBackend;
  readonly #files: readonly IoFile[];
  readonly #buffer: Uint8Array<SharedArrayBuffer>;
  readonly #fileBytes: number;

  constructor(backend: IoBackend, files: readonly IoFile[], buffer: Uint8Array<SharedArrayBuffer>) {
    this.#backend = backend;
    this.#files = files;
    this.#buffer = buffer;
    const blockBytes = Math.max(...BLOCK_BYTES);
    this.#fileBytes = Math.ceil(FILE_BYTES / files.length / blockBytes) * blockBytes;
  }

  /** Writes every byte once. */
  async prepare(): Promise<void> {
    const blockBytes = Math.max(...BLOCK_BYTES);
    const block = this.#buffer.subarray(0, blockBytes);
    for (const file of this.#files) {
      await this.#backend.reserve(file, this.#fileBytes);
      for (let offset = 0; offset < this.#fileBytes; offset += blockBytes) {
        await this.#backend.write(file, offset, block);
      }
      await this.#backend.flush(file);
    }
  }

  async rate(
    { mode, blockBytes, depth }: Omit<DiskRate, 'bytesPerSecond'>,
    rateSeconds: number,
  ): Promise<DiskRate> {
    const checksum = (bytes: Uint8Array): number => kernels().crc32c(bytes);
    const blocks = this.#fileBytes / blockBytes;
    const start = performance.now();
    const until = start + rateSeconds * 1000;
    let next = 0;
    const stream = async (slot: number): Promise<void> => {
      const block = this.#buffer.subarray(slot * blockBytes, (slot + 1) * blockBytes);
      while (performance.now() < until) {
        const at = next;
        next += 1;
        const file = this.#files[at % this.#files.length]!;
        const offset = (Math.floor(at / this.#files.length) % blocks) * blockBytes;
        const writes = mode === 'write' || (mode === 'mixed' && at % 2 === 1);
        if (writes) {
          checksum(block);
          await this.#backend.write(file, offset, block);
        } else {
          await this.#backend.read(file, offset, block);
          checksum(block);
        }
      }
    };
    await Promise.all(Array.from({ length: depth }, (_, slot) => stream(slot)));
    const seconds = (performance.now() - start) / 1000;
    return { mode, blockBytes, depth, bytesPerSecond: (next * blockBytes) / seconds };
  }
}
