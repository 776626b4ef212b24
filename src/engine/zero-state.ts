/**
 * @file Sets a stored float32 state to zeros.
 *
 * On NVMe every chunk is written, as many at a time as keep a disk busy, and all from one buffer:
 * none of the writes changes it. Memory is filled by elements, since engines fill shared memory
 * byte by byte ten times slower.
 */
import { assert } from '../../core/errors.js';
import { EventLoopPauses } from '../../core/event-loop.js';
import { settleAll } from '../../core/settle-all.js';
import { CHUNK_ELEMENTS } from '../../core/types.js';
import { chunkCount, chunkTransferBytes } from '../../tiers/nvme/chunk.js';
import type { NvmeLocation, StateLocation } from '../../tiers/state-location.js';
import type { TierManager } from '../../tiers/tier-manager.js';

/** Writes under way; disks reach their plateau at 4 to 8 (ring-backend.ts). */
const WRITES = 8;

/**
 * Sets all elements of `location` to zero.
 *
 * @throws IO_ERROR, IO_SHORT, NVME_FULL; the content is undefined then, and no request stays in
 *   flight
 */
export async function zeroState(
  location: StateLocation,
  tiers: Pick<TierManager, 'volume' | 'spillStaging'>,
): Promise<void> {
  if (location.kind === 'nvme') return zeroChunks(location, tiers);
  const { buffer, byteOffset, byteLength } = location.bytes;
  const values = new Float32Array(buffer, byteOffset, byteLength / 4);
  const pauses = new EventLoopPauses();
  for (let start = 0; start < values.length; start += CHUNK_ELEMENTS) {
    values.fill(0, start, start + CHUNK_ELEMENTS);
    await pauses.pause();
  }
}

async function zeroChunks(
  location: NvmeLocation,
  { volume, spillStaging }: Pick<TierManager, 'volume' | 'spillStaging'>,
): Promise<void> {
  assert(volume !== undefined, 'a state on NVMe has a volume');
  const loan = await spillStaging.acquire(1);
  try {
    const zeros = loan.buffers[0]!;
    new Float32Array(zeros.buffer, zeros.byteOffset, zeros.byteLength / 4).fill(0);
    const count = chunkCount(location);
    let next = 0;
    const writeOn = async (): Promise<void> => {
      while (next < count) {
        const index = next;
        next += 1;
        const source = zeros.subarray(0, chunkTransferBytes(location, index));
        await volume.writeChunk(location, index, source);
      }
    };
    await settleAll(Array.from({ length: WRITES }, writeOn));
  } finally {
    loan.release();
  }
}
