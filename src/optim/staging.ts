/**
 * @file How much staging memory the optimizer workers hold, exactly, for the memory plan.
 *
 * Each worker slot owns `depth` tile sets; a tile set holds one chunk of each state that may live
 * on NVMe. States in memory are updated in place and need none.
 */
import { alignUp } from '../../core/bytes.js';
import {
  CHUNK_ELEMENTS,
  IO_ALIGNMENT,
  type ComputeDtype,
  type StateName,
} from '../../core/types.js';

/** Tile sets per worker; src/optim/nvme-tiles.ts tells what each overlaps. */
export type StagingDepth = 1 | 2 | 3;

/** What training takes unless memory is short; bench/optimizer.ts holds it to its ceiling. */
export const PREFERRED_STAGING_DEPTH: StagingDepth = 3;

/** What a worker slot's staging memory must hold. */
export interface StagingShape {
  /** float32: no `master_lo`. bfloat16: `param` and `master_lo` take two bytes each. */
  readonly dtype: ComputeDtype;
  /** States of which some shard may be on NVMe; empty when all are in memory. */
  readonly nvmeStates: readonly StateName[];
  readonly depth: StagingDepth;
  /** Elements of the largest shard. Default: at least `depth` chunks. */
  readonly maxShardLength?: number;
}

/** Bytes per element of `state` when compute reads `dtype`. */
export function stateElementBytes(state: StateName, dtype: ComputeDtype): 2 | 4 {
  if (state === 'master_lo') return 2;
  return state === 'param' && dtype === 'bfloat16' ? 2 : 4;
}

/** Bytes of staging memory of `workers` workers together; the pool leases exactly this. */
export function stagingBytes(shape: StagingShape & { readonly workers: number }): number {
  return shape.workers * slotStagingBytes(shape);
}

/** Bytes of staging memory of one worker slot. */
export function slotStagingBytes(shape: StagingShape): number {
  const length = shape.maxShardLength ?? shape.depth * CHUNK_ELEMENTS;
  const elementBytes = shape.nvmeStates.map((state) => stateElementBytes(state, shape.dtype));
  return stagingNeed(length, shape.depth, elementBytes);
}

/**
 * Bytes of staging that a shard needs: `depth` tile sets, or fewer when it has fewer chunks, of one
 * padded chunk per NVMe state.
 *
 * @param length elements of the shard
 * @param elementBytes bytes per element of each state on NVMe
 */
export function stagingNeed(
  length: number,
  depth: number,
  elementBytes: readonly number[],
): number {
  const sets = Math.min(depth, Math.ceil(length / CHUNK_ELEMENTS));
  const setBytes = elementBytes
    .map((bytes) => alignUp(Math.min(length, CHUNK_ELEMENTS) * bytes, IO_ALIGNMENT))
    .reduce((sum, bytes) => sum + bytes, 0);
  return sets * setBytes;
}
