/**
 * @file The optimizer, as training runs it, beside its ceilings.
 *
 * - `memory`: an update through the pool (one worker), all states in memory, beside one call of the
 *   kernel per shard on this thread.
 * - `nvme`: an update of 64 Mi parameters in shards of 16 Mi, every state in a file past the page
 *   cache, gradient included (28 bytes per parameter), beside the same requests on a ring of the
 *   same depth without arithmetic and checksums: the mixed I/O ceiling.
 *
 * Claimed for `nvme` at the depth that training prefers, in both precisions: `TARGET` of the
 * ceiling. All host memory of a case, its ceiling's buffers too, is leased from a pool of 64 MiB,
 * which refuses what would exceed it. A case below its target fails the process
 * (bench/alternate.ts). Run: `npm run bench -- optimizer`; the file, 1 GiB, goes under TMPDIR, which
 * must offer O_DIRECT.
 */
import { closeSync, constants, mkdtempSync, openSync, rmSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { CHUNK_ELEMENTS, type ComputeDtype, type StateName } from '../core/types.js';
import { OptimizerPool } from '../src/optim/optimizer-pool.js';
import type { ShardUpdate } from '../src/optim/shard-update.js';
import { PREFERRED_STAGING_DEPTH, stateElementBytes } from '../src/optim/staging.js';
import { HostPool } from '../tiers/host/host-pool.js';
import { kernels } from '../tiers/native/binding.js';
import { createSyncIo } from '../tiers/nvme/create-sync-io.js';
import type { SyncIo } from '../tiers/nvme/io-backend.js';
import type { MemoryLocation, NvmeLocation, StateLocation } from '../tiers/state-location.js';
import { alternate, median, printCase, ROUNDS, round4, shareOf, verdictOf } from './alternate.js';

type Bytes = Uint8Array<SharedArrayBuffer>;
type States = ReadonlyMap<StateName, NvmeLocation>;

/** Of the mixed ceiling. */
const TARGET = 0.85;
const HOST_BUFFER_BYTES = 64 * 2 ** 20;
/** The default of `sub_group_size`. */
const SHARD_LENGTH = 64 * CHUNK_ELEMENTS;
const NVME_SHARDS = 4;
/** 512 MiB of states: beyond the cache. */
const MEMORY_SHARDS = 2;
/** Of a worker's ring (src/optim/adamw-worker.ts). */
const RING_DEPTH = 16;
const CEILING_SETS = 3;
const SCALARS = {
  learningRate: 1e-4,
  beta1: 0.9,
  beta2: 0.999,
  epsilon: 1e-8,
  weightDecay: 0.01,
  step: 10,
  gradScale: 1,
};

function namesOf(dtype: ComputeDtype): StateName[] {
  const halves: StateName[] = dtype === 'bfloat16' ? ['param', 'master_lo'] : ['param'];
  return [...halves, 'grad', 'exp_avg', 'exp_avg_sq'];
}

function jobOf(location: (name: StateName) => StateLocation, dtype: ComputeDtype): ShardUpdate {
  return {
    length: SHARD_LENGTH,
    param: location('param'),
    ...(dtype === 'bfloat16' && { masterLo: location('master_lo') }),
    grad: location('grad'),
    expAvg: location('exp_avg'),
    expAvgSq: location('exp_avg_sq'),
    scalars: SCALARS,
  };
}

function floats(bytes: Bytes): Float32Array<SharedArrayBuffer> {
  return new Float32Array(bytes.buffer, bytes.byteOffset, bytes.byteLength / 4);
}

async function benchMemory(): Promise<void> {
  const stateBytes = 4 * SHARD_LENGTH;
  const host = HostPool.create({ budgetBytes: MEMORY_SHARDS * 4 * stateBytes });
  const shards = Array.from({ length: MEMORY_SHARDS }, () => {
    const states = namesOf('float32').map((name): [StateName, MemoryLocation] => {
      const { bytes } = host.lease(stateBytes, name);
      floats(bytes).fill(1e-3);
      return [name, { kind: 'memory', tier: 'host', bytes }];
    });
    return new Map(states);
  });
  const jobs = shards.map((states) => jobOf((name) => states.get(name)!, 'float32'));
  const views = shards.map((states) => [...states.values()].map(({ bytes }) => floats(bytes)));
  const staging = { dtype: 'float32', nvmeStates: [], depth: 1 } as const;
  const pool = await OptimizerPool.create({ workers: 1, arena: host, io: 'auto', staging });
  const times = await alternate({
    update: () => Promise.all(jobs.map((job) => pool.update(job))),
    kernel: () => {
      for (const [param, grad, expAvg, expAvgSq] of views) {
        kernels().adamw(param!, grad!, expAvg!, expAvgSq!, SCALARS);
      }
    },
  });
  const length = MEMORY_SHARDS * SHARD_LENGTH;
  printCase({
    case: 'optimizer/memory float32',
    length,
    bytes: 28 * length,
    rounds: ROUNDS,
    bytesPerSecond: Math.round((28 * length) / median(times.update)),
    kernelBytesPerSecond: Math.round((28 * length) / median(times.kernel)),
    shareOfKernel: shareOf(times.kernel, times.update),
  });
  await pool.close();
  host.dispose();
}

/** Writes a shard's states from byte `start` of the file, one after another. */
function storeShard(fd: number, start: number, dtype: ComputeDtype, filling: Bytes): States {
  const chunks = SHARD_LENGTH / CHUNK_ELEMENTS;
  let offset = start;
  const states = namesOf(dtype).map((name): [StateName, NvmeLocation] => {
    const chunkBytes = CHUNK_ELEMENTS * stateElementBytes(name, dtype);
    const chunk = filling.subarray(0, chunkBytes);
    const checksums = new Uint32Array(new SharedArrayBuffer(4 * chunks)).fill(
      kernels().crc32c(chunk),
    );
    const byteLength = chunks * chunkBytes;
    const location: NvmeLocation = {
      kind: 'nvme',
      fileIndex: 0,
      fd,
      offset,
      byteLength,
      chunkBytes,
      checksums,
    };
    for (let index = 0; index < chunks; index += 1) {
      writeSync(fd, chunk, 0, chunkBytes, offset + index * chunkBytes);
    }
    offset += byteLength;
    return [name, location];
  });
  return new Map(states);
}

/**
 * The requests of an update and nothing between them: tile by tile all states in, all but the
 * gradient out, the next tile being read. It writes what it read, so that checksums still hold.
 */
function transferOnly(shards: readonly States[], buffers: readonly Bytes[], io: SyncIo): void {
  const tilesPerShard = SHARD_LENGTH / CHUNK_ELEMENTS;
  const tiles = shards.length * tilesPerShard;
  const reads: number[][] = [];
  const writes: number[][] = [];
  const start = (op: 'read' | 'write', tile: number): number[] => {
    const states = shards[Math.floor(tile / tilesPerShard)]!;
    const set = buffers[tile % CEILING_SETS]!;
    let from = 0;
    return [...states].flatMap(([name, { fd, offset, chunkBytes }]) => {
      const view = set.subarray(from, from + chunkBytes);
      from += chunkBytes;
      if (op === 'write' && name === 'grad') return [];
      return [io[op](fd, offset + (tile % tilesPerShard) * chunkBytes, view)];
    });
  };
  reads[0] = start('read', 0);
  for (let tile = 0; tile < tiles; tile += 1) {
    for (const ticket of writes[tile - 2] ?? []) io.wait(ticket);
    if (tile + 1 < tiles) reads[tile + 1] = start('read', tile + 1);
    for (const ticket of reads[tile]!) io.wait(ticket);
    writes[tile] = start('write', tile);
  }
  for (const ticket of writes.slice(-2).flat()) io.wait(ticket);
}

async function benchNvme(folder: string, dtype: ComputeDtype, workers: number): Promise<void> {
  const { O_CREAT, O_RDWR, O_DIRECT } = constants;
  const fd = openSync(join(folder, 'states.bin'), O_CREAT | O_RDWR | O_DIRECT);
  const host = HostPool.create({ budgetBytes: HOST_BUFFER_BYTES });
  const setBytes = 16 * CHUNK_ELEMENTS; // 16 bytes per parameter in either precision.
  const sets = Array.from({ length: CEILING_SETS }, () => host.lease(setBytes, 'ceiling').bytes);
  floats(sets[0]!).fill(1e-3);
  const shards = Array.from({ length: NVME_SHARDS }, (_, index) =>
    storeShard(fd, index * 16 * SHARD_LENGTH, dtype, sets[0]!),
  );
  const depth = PREFERRED_STAGING_DEPTH;
  const staging = { dtype, nvmeStates: namesOf(dtype), depth };
  const pool = await OptimizerPool.create({ workers, arena: host, io: 'auto', staging });
  const io = createSyncIo({ depth: RING_DEPTH });
  const jobs = shards.map((states) => jobOf((name) => states.get(name)!, dtype));
  const bytes = 28 * SHARD_LENGTH * NVME_SHARDS;
  try {
    const times = await alternate({
      update: async () => {
        const results = await Promise.all(jobs.map((job) => pool.update(job)));
        const moved = results.map((one) => one.nvmeReadBytes + one.nvmeWrittenBytes);
        const sum = moved.reduce((total, one) => total + one, 0);
        if (sum !== bytes) throw new Error(`the update moved ${sum} bytes, not ${bytes}`);
      },
      ceiling: () => {
        const before = io.bytesRead + io.bytesWritten;
        transferOnly(shards, sets, io);
        const sum = io.bytesRead + io.bytesWritten - before;
        if (sum !== bytes) throw new Error(`the ceiling moved ${sum} bytes, not ${bytes}`);
      },
    });
    const share = shareOf(times.ceiling, times.update);
    const length = NVME_SHARDS * SHARD_LENGTH;
    printCase({
      case: `optimizer/nvme ${dtype}, workers ${workers}`,
      length,
      io: pool.io,
      depth,
      hostBufferBytes: host.peakBytes,
      bytes,
      rounds: ROUNDS,
      seconds: round4(median(times.update)),
      parametersPerSecond: Math.round(length / median(times.update)),
      bytesPerSecond: Math.round(bytes / median(times.update)),
      ceilingBytesPerSecond: Math.round(bytes / median(times.ceiling)),
      shareOfCeiling: share,
      ...verdictOf(share, TARGET),
    });
  } finally {
    await pool.close();
    io.dispose();
    host.dispose();
    closeSync(fd);
  }
}

export default async function benchOptimizer(): Promise<void> {
  await benchMemory();
  const folder = mkdtempSync(join(tmpdir(), 'spillway-bench-'));
  try {
    for (const dtype of ['float32', 'bfloat16'] as const) {
      for (const workers of [1, 2]) await benchNvme(folder, dtype, workers);
    }
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
