/**
 * @file Measures the folders of the NVMe tier: reads, writes and both at once, over block sizes and
 * depths, each block with its checksum as the engine's chunks have it, beside kernels.
 *
 * Files are made anew, written once (the first write into fallocated space is slow) and removed.
 */
import { randomBytes } from 'node:crypto';
import { mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { CHUNK_ELEMENTS } from '../../../core/types.js';
import type { Device } from '../../../tiers/device/device.js';
import type { MemoryArena } from '../../../tiers/host/host-buffer.js';
import { kernels } from '../../../tiers/native/binding.js';
import type { IoBackend, IoFile } from '../../../tiers/nvme/io-backend.js';
import { besideCompute } from './beside-compute.js';
import type { DiskCosts } from './cost-store.js';
import type { Deadline } from './deadline.js';
import { median } from './median.js';

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

/** What is measured; the engine's own block size and depth first, the rest while there is time. */
const BLOCK_BYTES = [CHUNK_BYTES, 2 ** 18, 4 * CHUNK_BYTES];
const DEPTHS = [DEPTH, 1, 4];
const MODES = ['read', 'write', 'mixed'] as const;

/** Of all folders together. */
const FILE_BYTES = 2 ** 28;

/** Of one measurement, at most. */
const RATE_SECONDS = 0.2;

/** Rounds over the engine's own block size and depth: another's burst of writes lasts for one. */
const OWN_ROUNDS = 3;

/** Share of the time in which the files are written first, at most. */
const PREPARING = 0.25;

/** What disks are measured with. */
export interface DiskRequest {
  readonly folders: readonly string[];
  readonly backend: IoBackend;
  readonly device: Device;
  readonly arena: MemoryArena;
}

/**
 * Takes 32 MiB of the arena and up to 256 MiB of the folders, less where they are slow.
 *
 * @throws NVME_FULL, PATH_UNWRITABLE, IO_ERROR; nothing is left behind
 */
export async function measureDisk(request: DiskRequest, until: Deadline): Promise<DiskMeasurement> {
  const { folders, backend, device, arena } = request;
  const name = `spillway-tune-${process.pid}-${randomBytes(4).toString('hex')}`;
  const paths = folders.map((folder) => join(folder, name));
  const lease = arena.lease(DEPTH * Math.max(...BLOCK_BYTES), 'disk');
  const files: IoFile[] = [];
  try {
    lease.bytes.fill(1);
    for (const folder of folders) await mkdir(folder, { recursive: true });
    for (const path of paths) files.push(await backend.open(path));
    const disk = new Disk(backend, files, lease.bytes);
    await disk.reserve();
    // A process that is killed leaves nothing: an open file needs no name.
    for (const path of paths) await rm(path);
    await disk.prepare(until.part(PREPARING));
    const rates = await besideCompute(device, () => allRates(disk, until));
    const costs = costsOf(rates);
    return { rates: medians(rates), costs, direct: files.every(({ direct }) => direct) };
  } finally {
    for (const file of files) await backend.close(file);
    for (const path of paths) await rm(path, { force: true });
    lease.dispose();
  }
}

/** The engine's own block size and depth in rounds, then the rest while there is time. */
async function allRates(disk: Disk, until: Deadline): Promise<DiskRate[]> {
  const wanted = BLOCK_BYTES.flatMap((blockBytes) =>
    DEPTHS.map((depth) => ({ blockBytes, depth })),
  );
  const [own, ...others] = wanted;
  const rounds = [...Array.from({ length: OWN_ROUNDS }, () => own!), ...others];
  const seconds = Math.min(RATE_SECONDS, until.seconds / rounds.length / MODES.length);
  const rates: DiskRate[] = [];
  for (const [round, one] of rounds.entries()) {
    if (round > 0 && until.isOver) break;
    for (const mode of MODES) rates.push(await disk.rate({ mode, ...one }, seconds));
  }
  return rates;
}

/** One rate of each kind: the median. */
function medians(rates: readonly DiskRate[]): DiskRate[] {
  const kinds = new Map<string, DiskRate[]>();
  for (const rate of rates) {
    const key = [rate.mode, rate.blockBytes, rate.depth].join();
    kinds.set(key, [...(kinds.get(key) ?? []), rate]);
  }
  return [...kinds.values()].map((same) => ({
    ...same[0]!,
    bytesPerSecond: median(same.map(({ bytesPerSecond }) => bytesPerSecond)),
  }));
}

/**
 * Medians at the engine's own block size and depth. How much reads and writes exclude each other is
 * worked out from neighbouring measurements, since a shared disk drifts.
 *
 * @param rates of one round after the other, each with all modes
 */
export function costsOf(rates: readonly DiskRate[]): DiskCosts {
  const ratesOf = (mode: DiskRate['mode']): number[] =>
    rates
      .filter((one) => one.mode === mode && one.blockBytes === CHUNK_BYTES && one.depth === DEPTH)
      .map(({ bytesPerSecond }) => bytesPerSecond);
  const [reads, writes, mixed] = [ratesOf('read'), ratesOf('write'), ratesOf('mixed')];
  const sharings = mixed.map((rate, round) => sharingOf(reads[round]!, writes[round]!, rate));
  return {
    nvmeRead: { bytesPerSecond: median(reads), secondsPerPiece: 0 },
    nvmeWrite: { bytesPerSecond: median(writes), secondsPerPiece: 0 },
    nvmeSharing: median(sharings),
  };
}

/** A mixed rate between that of a disk that does both at once and of one that does either. */
function sharingOf(read: number, write: number, mixed: number): number {
  // Seconds of a byte read and a byte written, apart and together.
  const [slower, faster] = [Math.max(1 / read, 1 / write), Math.min(1 / read, 1 / write)];
  return Math.min(1, Math.max(0, (2 / mixed - slower) / faster));
}

class Disk {
  readonly #backend: IoBackend;
  readonly #files: readonly IoFile[];
  readonly #buffer: Uint8Array<SharedArrayBuffer>;
  /** Of each file: what is reserved, and what is written. */
  readonly #reservedBytes: number;
  #fileBytes = 0;

  constructor(backend: IoBackend, files: readonly IoFile[], buffer: Uint8Array<SharedArrayBuffer>) {
    this.#backend = backend;
    this.#files = files;
    this.#buffer = buffer;
    const blockBytes = Math.max(...BLOCK_BYTES);
    this.#reservedBytes = Math.ceil(FILE_BYTES / files.length / blockBytes) * blockBytes;
  }

  async reserve(): Promise<void> {
    for (const file of this.#files) await this.#backend.reserve(file, this.#reservedBytes);
  }

  /** Writes each file once, as far as there is time. */
  async prepare(until: Deadline): Promise<void> {
    const blockBytes = Math.max(...BLOCK_BYTES);
    const block = this.#buffer.subarray(0, blockBytes);
    while (this.#fileBytes < this.#reservedBytes && (this.#fileBytes === 0 || !until.isOver)) {
      for (const file of this.#files) await this.#backend.write(file, this.#fileBytes, block);
      this.#fileBytes += blockBytes;
    }
    for (const file of this.#files) await this.#backend.flush(file);
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
      do {
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
      } while (performance.now() < until);
    };
    await Promise.all(Array.from({ length: depth }, (_, slot) => stream(slot)));
    const seconds = (performance.now() - start) / 1000;
    return { mode, blockBytes, depth, bytesPerSecond: (next * blockBytes) / seconds };
  }
}
