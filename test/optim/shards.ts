/** Shards for tests of the optimizer: random states at any mix of homes, and the oracle. */
import { closeSync, constants, mkdtempSync, openSync, readSync, rmSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { alignUp } from '../../core/bytes.js';
import { SpillwayError } from '../../core/errors.js';
import {
  CHUNK_ELEMENTS,
  IO_ALIGNMENT,
  type ComputeDtype,
  type StateName,
} from '../../core/types.js';
import type { ShardUpdate } from '../../src/optim/shard-update.js';
import { stateElementBytes } from '../../src/optim/staging.js';
import type { MemoryArena, MemoryLease } from '../../tiers/host/host-buffer.js';
import { kernels } from '../../tiers/native/binding.js';
import type { AdamwScalars } from '../../tiers/native/native-binding.js';
import type { MemoryLocation, NvmeLocation, StateLocation } from '../../tiers/state-location.js';

export type Bytes = Uint8Array<SharedArrayBuffer>;

/** A value for each state that `dtype` has. */
export type PerState<T> = Partial<Record<StateName, T>>;

export const SCALARS: AdamwScalars = {
  learningRate: 1e-3,
  beta1: 0.9,
  beta2: 0.999,
  epsilon: 1e-8,
  weightDecay: 0.01,
  step: 3,
  gradScale: 0.75,
};

/** States of a shard, in the order in which their homes are listed. */
export function stateNames(dtype: ComputeDtype): StateName[] {
  const names: StateName[] = ['param', 'grad', 'exp_avg', 'exp_avg_sq'];
  return dtype === 'bfloat16' ? [...names, 'master_lo'] : names;
}

/** Shared memory; its length is padded to 4096 behind the view. */
export function sharedBytes(byteLength: number): Bytes {
  return new Uint8Array(new SharedArrayBuffer(alignUp(byteLength, IO_ALIGNMENT))).subarray(
    0,
    byteLength,
  );
}

export function floatsOf(bytes: Bytes): Float32Array<SharedArrayBuffer> {
  return new Float32Array(bytes.buffer, bytes.byteOffset, bytes.byteLength / 4);
}

export function wordsOf(bytes: Bytes): Uint16Array<SharedArrayBuffer> {
  return new Uint16Array(bytes.buffer, bytes.byteOffset, bytes.byteLength / 2);
}

/** Seeded states of `length` elements: uniform values in [-1, 1), exp_avg_sq not negative. */
export function randomStates(length: number, dtype: ComputeDtype, seed: number): PerState<Bytes> {
  let word = seed >>> 0;
  const uniform = (): number => {
    word = (Math.imul(word, 1664525) + 1013904223) >>> 0;
    return word / 2 ** 31 - 1;
  };
  const states: PerState<Bytes> = {};
  for (const name of ['grad', 'exp_avg', 'exp_avg_sq'] as const) {
    const bytes = sharedBytes(4 * length);
    floatsOf(bytes).forEach((_, i, values) => {
      values[i] = name === 'exp_avg_sq' ? Math.abs(uniform()) : uniform();
    });
    states[name] = bytes;
  }
  const master = floatsOf(sharedBytes(4 * length)).map(uniform);
  states.param = sharedBytes(stateElementBytes('param', dtype) * length);
  if (dtype === 'float32') {
    floatsOf(states.param).set(master);
  } else {
    states.master_lo = sharedBytes(2 * length);
    kernels().splitMaster(master, wordsOf(states.param), wordsOf(states.master_lo));
  }
  return states;
}

/** What one update must give: the kernel, called once over the whole shard. */
export function expectedStates(states: PerState<Bytes>, scalars = SCALARS): PerState<Bytes> {
  const copies: PerState<Bytes> = {};
  for (const [name, bytes] of Object.entries(states)) {
    const copy = sharedBytes(bytes.byteLength);
    copy.set(bytes);
    copies[name as StateName] = copy;
  }
  const { param, master_lo: masterLo, grad, exp_avg: expAvg, exp_avg_sq: expAvgSq } = copies;
  const rest = [floatsOf(grad!), floatsOf(expAvg!), floatsOf(expAvgSq!), scalars] as const;
  if (masterLo === undefined) kernels().adamw(floatsOf(param!), ...rest);
  else kernels().adamwSplit(wordsOf(param!), wordsOf(masterLo), ...rest);
  return copies;
}

/** A folder with one data file, in which states are stored one after another. */
export class StateFile {
  readonly #folder = mkdtempSync(join(tmpdir(), 'spillway-optim-'));
  readonly path = join(this.#folder, 'states.bin');
  /** The descriptor that jobs use. */
  readonly fd: number;
  /** The test's own, through the page cache. */
  readonly #cachedFd = openSync(this.path, 'w+');
  #end = IO_ALIGNMENT;

  /** @param flags how jobs open the file, for example with O_DIRECT */
  constructor(flags: number = constants.O_RDWR) {
    this.fd = openSync(this.path, flags);
  }

  /** Stores `bytes` in padded chunks with checksums. */
  store(bytes: Bytes, elementBytes: number): NvmeLocation {
    const chunkBytes = CHUNK_ELEMENTS * elementBytes;
    const chunks = Math.ceil(bytes.byteLength / chunkBytes);
    const checksums = new Uint32Array(new SharedArrayBuffer(4 * chunks));
    const padded = sharedBytes(alignUp(bytes.byteLength, IO_ALIGNMENT));
    padded.set(bytes);
    for (let chunk = 0; chunk < chunks; chunk += 1) {
      const part = padded.subarray(chunk * chunkBytes, (chunk + 1) * chunkBytes);
      checksums[chunk] = kernels().crc32c(part);
    }
    const offset = this.#end;
    this.#end += padded.byteLength;
    writeSync(this.#cachedFd, padded, 0, padded.byteLength, offset);
    return {
      kind: 'nvme',
      fileIndex: 0,
      fd: this.fd,
      offset,
      byteLength: bytes.byteLength,
      chunkBytes,
      checksums,
    };
  }

  /** Reads a state back, padding included, and checks every chunk's checksum against it. */
  load(location: NvmeLocation): Bytes {
    const padded = sharedBytes(alignUp(location.byteLength, IO_ALIGNMENT));
    readSync(this.#cachedFd, padded, 0, padded.byteLength, location.offset);
    location.checksums.forEach((checksum, chunk) => {
      const start = chunk * location.chunkBytes;
      const part = padded.subarray(start, start + location.chunkBytes);
      if (kernels().crc32c(part) !== checksum) throw new Error(`checksum of chunk ${chunk}`);
    });
    if (padded.subarray(location.byteLength).some((byte) => byte !== 0)) {
      throw new Error('padding is not zero');
    }
    return padded.subarray(0, location.byteLength);
  }

  dispose(): void {
    closeSync(this.fd);
    closeSync(this.#cachedFd);
    rmSync(this.#folder, { recursive: true });
  }
}

/** A shard whose states live where `nvme` says: those named on NVMe, the others in memory. */
export interface PlacedShard {
  readonly job: ShardUpdate;
  /** What each state holds now. */
  read(): PerState<Bytes>;
  locations: PerState<StateLocation>;
}

export function placeShard(
  states: PerState<Bytes>,
  nvme: readonly StateName[],
  file: StateFile,
  options: { readonly countChanges?: boolean; readonly scalars?: AdamwScalars } = {},
): PlacedShard {
  const split = states.master_lo !== undefined;
  const dtype = split ? 'bfloat16' : 'float32';
  const locations: PerState<StateLocation> = {};
  for (const name of stateNames(dtype)) {
    const bytes = states[name]!;
    if (nvme.includes(name)) {
      locations[name] = file.store(bytes, stateElementBytes(name, dtype));
    } else {
      const copy = sharedBytes(bytes.byteLength);
      copy.set(bytes);
      locations[name] = { kind: 'memory', tier: 'host', bytes: copy } satisfies MemoryLocation;
    }
  }
  const { param, grad, exp_avg: expAvg, exp_avg_sq: expAvgSq, master_lo: masterLo } = locations;
  return {
    locations,
    job: {
      length: states.grad!.byteLength / 4,
      param: param!,
      grad: grad!,
      expAvg: expAvg!,
      expAvgSq: expAvgSq!,
      ...(masterLo !== undefined && { masterLo }),
      scalars: options.scalars ?? SCALARS,
      ...(options.countChanges !== undefined && { countChanges: options.countChanges }),
    },
    read: () =>
      Object.fromEntries(
        Object.entries(locations).map(([name, location]) => [
          name,
          location.kind === 'nvme' ? file.load(location) : location.bytes,
        ]),
      ),
  };
}

/** Names of the states of which `actual` and `expected` differ in any byte. */
export function differences(actual: PerState<Bytes>, expected: PerState<Bytes>): string[] {
  return Object.entries(expected)
    .filter(([name, bytes]) => Buffer.compare(actual[name as StateName]!, bytes) !== 0)
    .map(([name]) => name);
}

/** An arena that counts: enough to see that every lease comes back. */
export class CountingArena implements MemoryArena {
  readonly budgetBytes: number;
  liveBytes = 0;
  peakBytes = 0;

  constructor(budgetBytes = 2 ** 30) {
    this.budgetBytes = budgetBytes;
  }

  lease(byteLength: number, label: string): MemoryLease {
    if (this.liveBytes + byteLength > this.budgetBytes) {
      throw new SpillwayError('HOST_OUT_OF_MEMORY', 'test arena is full', { byteLength });
    }
    this.liveBytes += byteLength;
    this.peakBytes = Math.max(this.peakBytes, this.liveBytes);
    let live = true;
    return {
      bytes: sharedBytes(byteLength),
      label,
      dispose: () => {
        if (live) this.liveBytes -= byteLength;
        live = false;
      },
    };
  }
}
