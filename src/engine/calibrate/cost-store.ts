/**
 * @file What `spillway tune` measured, kept between runs: an LMDB directory at
 * `$XDG_CACHE_HOME/spillway/costs`, else `~/.cache/spillway/costs`.
 *
 * Keys name the machine (processor, cores, threads, addon, Node.js) and, for disks, the folders. A
 * value is its CRC-32C (4 bytes, little-endian) and then JSON, since LMDB's pages carry no checksum.
 * A damaged value is as good as none, and so is a damaged directory: they are measured again.
 */
import { createHash } from 'node:crypto';
import { rm } from 'node:fs/promises';
import { availableParallelism, cpus, homedir } from 'node:os';
import { isAbsolute, join, resolve } from 'node:path';
import type { RootDatabase } from 'lmdb';
import { errnoOf } from '../../../core/errno.js';
import { SpillwayError } from '../../../core/errors.js';
import { ABI_VERSION, isa, kernels } from '../../../tiers/native/binding.js';
import {
  DEFAULT_COSTS,
  type HostCosts,
  type LinkCost,
  type MachineCosts,
  type MeasuredCompute,
  type UpdateCosts,
} from '../../plan/costs.js';
import { isLmdbFile } from './is-lmdb-file.js';

/** Version of the records below. */
const VERSION = 2;

/** Of device and host, whatever the disk. */
export interface CopyCosts {
  readonly upload: LinkCost;
  readonly download: LinkCost;
  readonly host: HostCosts;
}

/** Of a set of folders. */
export interface DiskCosts {
  readonly nvmeRead: LinkCost;
  readonly nvmeWrite: LinkCost;
  readonly nvmeSharing: number;
}

const WHAT = ['copies', 'update', 'nvme', 'compute'] as const;

/** What was measured, and what was not and is taken from defaults. */
export interface KnownCosts {
  readonly costs: MachineCosts;
  readonly missing: readonly (typeof WHAT)[number][];
}

/** What costs depend on besides the machine. */
export interface CostKeys {
  readonly device: string;
  readonly dtype: string;
  readonly workers: number;
  /** Folders of the NVMe tier; none where nothing is put there. */
  readonly nvmePaths: readonly string[];
}

/** The folder of people who set none: XDG's base directory for caches. */
export function costFolder(env: Readonly<NodeJS.ProcessEnv> = process.env): string {
  const base = env['XDG_CACHE_HOME'];
  // The specification has relative paths ignored.
  const caches = base !== undefined && isAbsolute(base) ? base : join(homedir(), '.cache');
  return join(caches, 'spillway', 'costs');
}

/** Costs by machine and path. */
export class CostStore {
  readonly #database: RootDatabase<Buffer, string>;
  readonly #machine: string;

  private constructor(database: RootDatabase<Buffer, string>) {
    this.#database = database;
    this.#machine = machineKey();
  }

  /**
   * Opens the store, creating it when absent or damaged.
   *
   * @throws PATH_UNWRITABLE where the folder or what is in it cannot be read and written
   */
  static async open(folder: string = costFolder()): Promise<CostStore> {
    try {
      const path = join(folder, 'directory');
      if (!(await isWhole(path))) await rm(dataFile(path));
      return await CostStore.#open(path);
    } catch (error) {
      const errno = errnoOf(error);
      const message = `cannot keep costs in ${folder} (${errno}); make it writable, or set XDG_CACHE_HOME to a folder that is`;
      throw new SpillwayError('PATH_UNWRITABLE', message, { path: folder, errno }, error);
    }
  }

  /** Opens what is there, changing nothing; undefined where there is nothing that can be read. */
  static async openForReading(folder: string = costFolder()): Promise<CostStore | undefined> {
    const path = join(folder, 'directory');
    try {
      return (await isWhole(path, false)) ? await CostStore.#open(path, true) : undefined;
    } catch {
      return undefined; // Whoever would measure again is told why.
    }
  }

  static async #open(path: string, readOnly = false): Promise<CostStore> {
    // A plan on a machine where nothing was measured starts without it.
    const { open } = await import('lmdb');
    return new CostStore(
      open<Buffer, string>({
        path,
        encoding: 'binary',
        overlappingSync: false,
        noSubdir: false,
        readOnly,
      }),
    );
  }

  async putCopies(device: string, costs: CopyCosts): Promise<void> {
    await this.#put(`copies/${device}`, costs);
  }

  async putUpdate(
    { dtype, workers }: Pick<CostKeys, 'dtype' | 'workers'>,
    costs: UpdateCosts,
  ): Promise<void> {
    await this.#put(`update/${dtype}/${workers}`, costs);
  }

  /** Of updates whose states are in `nvmePaths`; bytes per second, read and written. */
  async putNvmeUpdate(keys: Omit<CostKeys, 'device'>, bytesPerSecond: number): Promise<void> {
    await this.#put(nvmeUpdateKey(keys), { bytesPerSecond });
  }

  async putDisk(paths: readonly string[], costs: DiskCosts): Promise<void> {
    await this.#put(diskKey(paths), costs);
  }

  /** Replaces what is known of these operations. */
  async putCompute(device: string, measured: readonly MeasuredCompute[]): Promise<void> {
    for (const one of measured) await this.#put(`compute/${device}/${digest(one.key)}`, one);
  }

  /** Everything that is known, defaults for the rest. */
  known(keys: CostKeys, defaults: MachineCosts): KnownCosts {
    const { device, dtype, workers, nvmePaths } = keys;
    const copies = this.#get(`copies/${device}`) as CopyCosts | undefined;
    const update = this.#get(`update/${dtype}/${workers}`) as UpdateCosts | undefined;
    const disk = this.#get(diskKey(nvmePaths)) as DiskCosts | undefined;
    const nvmeUpdate = this.#get(nvmeUpdateKey(keys)) as { bytesPerSecond: number } | undefined;
    const compute = this.#all(`compute/${device}/`) as MeasuredCompute[];
    const missing: KnownCosts['missing'][number][] = [];
    if (copies === undefined) missing.push('copies');
    if (update === undefined) missing.push('update');
    if (disk === undefined && nvmePaths.length > 0) missing.push('nvme');
    if (compute.length === 0) missing.push('compute');
    const { links } = defaults;
    return {
      costs: {
        ...defaults,
        links: {
          upload: copies?.upload ?? links.upload,
          download: copies?.download ?? links.download,
          nvme_read: disk?.nvmeRead ?? links.nvme_read,
          nvme_write: disk?.nvmeWrite ?? links.nvme_write,
        },
        nvmeSharing: disk?.nvmeSharing ?? defaults.nvmeSharing,
        ...update,
        ...(nvmeUpdate && { updateNvmeBytesPerSecond: nvmeUpdate.bytesPerSecond }),
        host: copies?.host ?? defaults.host,
        compute,
      },
      missing,
    };
  }

  /** Idempotent. */
  async close(): Promise<void> {
    await this.#database.close();
  }

  async #put(key: string, value: object): Promise<void> {
    const payload = new TextEncoder().encode(JSON.stringify(value));
    const encoded = Buffer.alloc(4 + payload.byteLength);
    encoded.writeUInt32LE(kernels().crc32c(payload), 0);
    encoded.set(payload, 4);
    await this.#database.put(`${this.#machine}/${key}`, encoded);
  }

  #get(key: string): unknown {
    const value = this.#database.get(`${this.#machine}/${key}`);
    return value === undefined ? undefined : decode(value);
  }

  #all(prefix: string): unknown[] {
    const start = `${this.#machine}/${prefix}`;
    const values: unknown[] = [];
    for (const { value } of this.#database.getRange({ start, end: `${start}\uffff` })) {
      const decoded = decode(value);
      if (decoded !== undefined) values.push(decoded);
    }
    return values;
  }
}

/** What is known of this machine; `defaults` alone where nothing was ever measured. */
export async function knownCosts(
  keys: CostKeys,
  defaults: MachineCosts = DEFAULT_COSTS,
  folder: string = costFolder(),
): Promise<KnownCosts> {
  const store = await CostStore.openForReading(folder);
  if (store === undefined) {
    const missing = WHAT.filter((one) => one !== 'nvme' || keys.nvmePaths.length > 0);
    return { costs: defaults, missing };
  }
  try {
    return store.known(keys, defaults);
  } finally {
    await store.close();
  }
}

const dataFile = (path: string): string => join(path, 'data.mdb');

/** @param absent the answer where there is none */
async function isWhole(path: string, absent = true): Promise<boolean> {
  try {
    return await isLmdbFile(dataFile(path));
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return absent;
    throw error;
  }
}

function decode(value: Buffer): unknown {
  if (value.byteLength < 4) return undefined;
  const payload = Uint8Array.from(value.subarray(4));
  if (kernels().crc32c(payload) !== value.readUInt32LE(0)) return undefined;
  return JSON.parse(Buffer.from(payload).toString('utf8'));
}

function machineKey(): string {
  const model = cpus()[0]?.model ?? '';
  const threads = process.env['SPILLWAY_THREADS'] ?? '';
  const facts = [VERSION, model, availableParallelism(), threads, ABI_VERSION, isa()];
  return digest([...facts, process.version].join('|'));
}

function diskKey(paths: readonly string[]): string {
  return `disk/${digest(paths.map((path) => resolve(path)).join('\0'))}`;
}

function nvmeUpdateKey({ dtype, workers, nvmePaths }: Omit<CostKeys, 'device'>): string {
  return `nvme-update/${dtype}/${workers}/${diskKey(nvmePaths)}`;
}

function digest(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}
