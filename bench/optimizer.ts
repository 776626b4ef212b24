/**
 * @file Benchmark of the optimizer, each case beside its ceiling, the two taken alternately.
 *
 * - `memory`: one update through the pool (1 worker) against the same kernel called directly.
 * - `nvme`: one update that streams param, exp_avg and exp_avg_sq past the page cache (gradient in
 *   memory), at depths 1 to 3, against the same requests on the same ring without checksums and
 *   arithmetic.
 *
 * Prints one JSON line per case; medians. Run: `node --import tsx bench/optimizer.ts [FOLDER]`.
 */
import { closeSync, constants, mkdtempSync, openSync, rmSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { CHUNK_ELEMENTS } from '../core/types.js';
import { OptimizerPool } from '../src/optim/optimizer-pool.js';
import type { ShardUpdate } from '../src/optim/shard-update.js';
import { slotStagingBytes, stagingBytes, type StagingShape } from '../src/optim/staging.js';
import { updateShard } from '../src/optim/update-shard.js';
import { HostPool } from '../tiers/host/host-pool.js';
import { kernels } from '../tiers/native/binding.js';
import { createSyncIo } from '../tiers/nvme/create-sync-io.js';
import type { SyncIo } from '../tiers/nvme/io-backend.js';
import type { MemoryLocation, NvmeLocation } from '../tiers/state-location.js';

type Bytes = Uint8Array<SharedArrayBuffer>;

/** 64 MiB per float32 state: beyond the cache. */
const LENGTH = 64 * CHUNK_ELEMENTS;
const CHUNK_BYTES = 4 * CHUNK_ELEMENTS;
const ROUNDS = 7;
const SCALARS = {
  learningRate: 1e-4,
  beta1: 0.9,
  beta2: 0.999,
  epsilon: 1e-8,
  weightDecay: 0.01,
  step: 10,
  gradScale: 1,
};

const host = HostPool.create({ budgetBytes: 2 ** 30 });

function inMemory(): MemoryLocation {
  const { bytes } = host.lease(4 * LENGTH, 'bench');
  new Float32Array(bytes.buffer, bytes.byteOffset, LENGTH).fill(1e-3);
  return { kind: 'memory', tier: 'host', bytes };
}

function floats({ bytes }: MemoryLocation): Float32Array {
  return new Float32Array(bytes.buffer, bytes.byteOffset, LENGTH);
}

/** Runs both alternately and prints the case with its share of the ceiling. */
async function report(
  name: string,
  bytes: number,
  run: () => unknown,
  ceiling: () => unknown,
): Promise<void> {
  const times: [number[], number[]] = [[], []];
  for (let round = 0; round <= ROUNDS; round += 1) {
    for (const [index, action] of [run, ceiling].entries()) {
      const start = performance.now();
      await action();
      if (round > 0) times[index]!.push((performance.now() - start) / 1000); // 0 warms up.
    }
  }
  const [seconds, ceilingSeconds] = times.map((list) => list.sort((a, b) => a - b)[ROUNDS >> 1]!);
  const line = {
    case: name,
    length: LENGTH,
    bytes,
    seconds,
    parametersPerSecond: Math.round(LENGTH / seconds!),
    bytesPerSecond: Math.round(bytes / seconds!),
    ceilingBytesPerSecond: Math.round(bytes / ceilingSeconds!),
    shareOfCeiling: Number((ceilingSeconds! / seconds!).toFixed(3)),
  };
  console.log(JSON.stringify(line));
}

async function benchMemory(): Promise<void> {
  const [param, grad, expAvg, expAvgSq] = [inMemory(), inMemory(), inMemory(), inMemory()];
  const job: ShardUpdate = { length: LENGTH, param, grad, expAvg, expAvgSq, scalars: SCALARS };
  const staging: StagingShape = { dtype: 'float32', nvmeStates: [], depth: 1 };
  const pool = await OptimizerPool.create({ workers: 1, arena: host, io: 'auto', staging });
  const views = [floats(param), floats(grad), floats(expAvg), floats(expAvgSq)] as const;
  // Reads p, g, m, v; writes p, m, v.
  await report(
    'optimizer/memory',
    7 * 4 * LENGTH,
    () => pool.update(job),
    () => kernels().adamw(...views, SCALARS),
  );
  await pool.close();
}

function onNvme(fd: number, index: number, filling: Bytes): NvmeLocation {
  const chunks = LENGTH / CHUNK_ELEMENTS;
  const checksums = new Uint32Array(new SharedArrayBuffer(4 * chunks));
  const offset = index * 4 * LENGTH;
  for (let chunk = 0; chunk < chunks; chunk += 1) {
    writeSync(fd, filling, 0, CHUNK_BYTES, offset + chunk * CHUNK_BYTES);
    checksums[chunk] = kernels().crc32c(filling);
  }
  const byteLength = 4 * LENGTH;
  return { kind: 'nvme', fileIndex: 0, fd, offset, byteLength, chunkBytes: CHUNK_BYTES, checksums };
}

/** The same transfers with three tile sets and nothing between them. */
function transferOnly(states: readonly NvmeLocation[], staging: Bytes, io: SyncIo): void {
  const buffers = Array.from({ length: 9 }, (_, i) =>
    staging.subarray(i * CHUNK_BYTES, (i + 1) * CHUNK_BYTES),
  );
  const reads: number[][] = [];
  const writes: number[][] = [];
  const startReads = (tile: number): void => {
    reads[tile] = states.map(({ fd, offset }, state) =>
      io.read(fd, offset + tile * CHUNK_BYTES, buffers[(tile % 3) * 3 + state]!),
    );
  };
  const tiles = LENGTH / CHUNK_ELEMENTS;
  startReads(0);
  for (let tile = 0; tile < tiles; tile += 1) {
    for (const ticket of writes[tile - 2] ?? []) io.wait(ticket);
    if (tile + 1 < tiles) startReads(tile + 1);
    for (const ticket of reads[tile]!) io.wait(ticket);
    writes[tile] = states.map(({ fd, offset }, state) =>
      io.write(fd, offset + tile * CHUNK_BYTES, buffers[(tile % 3) * 3 + state]!),
    );
  }
  for (const ticket of writes.slice(-2).flat()) io.wait(ticket);
}

async function benchNvme(folder: string): Promise<void> {
  const place = mkdtempSync(join(folder, 'spillway-bench-'));
  const { O_CREAT, O_RDWR, O_DIRECT } = constants;
  const fd = openSync(join(place, 'states.bin'), O_CREAT | O_RDWR | O_DIRECT);
  const io = createSyncIo({ depth: 8 });
  try {
    const shape: StagingShape = {
      dtype: 'float32',
      nvmeStates: ['param', 'exp_avg', 'exp_avg_sq'],
      depth: 3,
    };
    const staging = host.lease(stagingBytes({ ...shape, workers: 1 }), 'bench').bytes;
    const filling = host.lease(CHUNK_BYTES, 'bench').bytes.fill(0);
    const states = [0, 1, 2].map((index) => onNvme(fd, index, filling));
    const [param, expAvg, expAvgSq] = states as [NvmeLocation, NvmeLocation, NvmeLocation];
    const grad = inMemory();
    const job: ShardUpdate = { length: LENGTH, param, grad, expAvg, expAvgSq, scalars: SCALARS };
    for (const depth of [1, 2, 3] as const) {
      const part = staging.subarray(0, slotStagingBytes({ ...shape, depth }));
      const context = { kernels: kernels(), io, staging: part, depth, isCancelled: () => false };
      await report(
        `optimizer/nvme/${io.kind}/depth-${depth}`,
        6 * 4 * LENGTH,
        () => updateShard(job, context),
        // It writes back what it read, so that the checksums still hold.
        () => transferOnly(states, staging, io),
      );
    }
  } finally {
    io.dispose();
    closeSync(fd);
    rmSync(place, { recursive: true });
  }
}

/** Runs all cases; files go under `folder`, which must offer O_DIRECT. */
export async function benchOptimizer(folder = tmpdir()): Promise<void> {
  await benchMemory();
  await benchNvme(folder);
  host.dispose();
}

if (process.argv[1] === fileURLToPath(import.meta.url)) await benchOptimizer(process.argv[2]);
