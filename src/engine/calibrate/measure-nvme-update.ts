/**
 * @file Measures AdamW on the optimizer's workers, all at once, states in the NVMe tier: read,
 * updated and written back tile by tile, beside kernels.
 */
import { randomBytes } from 'node:crypto';
import { alignUp } from '../../../core/bytes.js';
import { CHUNK_ELEMENTS, elementBytes, IO_ALIGNMENT, type StateName } from '../../../core/types.js';
import type { Device } from '../../../tiers/device/device.js';
import type { HostPool } from '../../../tiers/host/host-pool.js';
import { createIoBackend } from '../../../tiers/nvme/create-io-backend.js';
import { createLayout } from '../../../tiers/nvme/layout.js';
import { NvmeVolume } from '../../../tiers/nvme/volume.js';
import { OptimizerPool } from '../../optim/optimizer-pool.js';
import { PREFERRED_STAGING_DEPTH } from '../../optim/staging.js';
import { stateType } from '../../plan/placement.js';
import { besideCompute } from './beside-compute.js';
import { meanSeconds, type Deadline } from './deadline.js';
import type { UpdateWorkers } from './update-area.js';
import { jobOf, statesOf } from './update-job.js';

/** Elements of one shard: 64 MiB of states. */
const SHARD_LENGTH = 16 * CHUNK_ELEMENTS;

/** What it is measured with. */
export interface NvmeUpdateRequest extends UpdateWorkers {
  readonly device: Device;
  readonly arena: HostPool;
}

/**
 * Bytes per second, read and written, of all workers together, every state in `folders`, staged as
 * plans do it where memory allows. Takes 64 MiB of these and 48 MiB of the arena per worker; leaves
 * nothing behind.
 *
 * @throws NVME_FULL, PATH_UNWRITABLE, IO_ERROR, HOST_OUT_OF_MEMORY, WORKER_FAILED
 */
export async function measureNvmeUpdate(
  { device, arena, workers, dtype }: NvmeUpdateRequest,
  folders: readonly string[],
  until: Deadline,
): Promise<number> {
  const states = statesOf(dtype);
  const shards = Array.from({ length: workers }, (_, shard) => shard);
  const layout = createLayout({
    states: shards.flatMap((shard) =>
      states.map((state) => {
        const elementType = stateType(state, dtype);
        return { shard, state, elementCount: SHARD_LENGTH, elementType };
      }),
    ),
    scratch: [],
    fileCount: folders.length,
    slots: 1,
  });
  const volume = await NvmeVolume.create({
    paths: folders,
    runId: `spillway-tune-${process.pid}-${randomBytes(4).toString('hex')}`,
    backend: createIoBackend().backend,
    budgetBytes: Number.MAX_SAFE_INTEGER,
    layout,
  });
  try {
    await zeroStates(volume, arena);
    const jobs = shards.map((shard) =>
      jobOf(dtype, SHARD_LENGTH, (state) => volume.location(shard, state)),
    );
    const staging = { dtype, nvmeStates: states.toSorted(), depth: PREFERRED_STAGING_DEPTH };
    const { filePaths } = volume;
    const pool = await OptimizerPool.create({ workers, arena, staging, io: 'auto', filePaths });
    try {
      const seconds = await besideCompute(device, () =>
        meanSeconds(until, async () => {
          const start = performance.now();
          await Promise.all(jobs.map((job) => pool.update(job)));
          return (performance.now() - start) / 1000;
        }),
      );
      const bytesOf = (some: readonly StateName[]): number =>
        some.reduce((sum, state) => sum + elementBytes(stateType(state, dtype)), 0);
      const moved = bytesOf(states) + bytesOf(states.filter((state) => state !== 'grad'));
      return (workers * SHARD_LENGTH * moved) / seconds;
    } finally {
      await pool.close();
    }
  } finally {
    await volume.dispose({ remove: true });
  }
}

/** Writes every chunk once, since none is read before. */
async function zeroStates(volume: NvmeVolume, arena: HostPool): Promise<void> {
  const lease = arena.lease(CHUNK_ELEMENTS * 4, 'update');
  try {
    lease.bytes.fill(0);
    for (const { shard, state, byteLength, chunkBytes } of volume.layout.states) {
      const location = volume.location(shard, state);
      for (let chunk = 0; chunk * chunkBytes < byteLength; chunk += 1) {
        const bytes = Math.min(chunkBytes, byteLength - chunk * chunkBytes);
        const padded = alignUp(bytes, IO_ALIGNMENT);
        await volume.writeChunk(location, chunk, lease.bytes.subarray(0, padded));
      }
    }
  } finally {
    lease.dispose();
  }
}
