/**
 * @file The words that every floor of the house uses: tiers, states, shards, extents.
 *
 * Depends on nothing. Definitions follow the ZeRO-Infinity paper (arXiv 2104.07857) and the
 * "Words of the field" section of docs/ARCHITECTURE.md.
 */

/** Where bytes live. `device` is what compute reads, `host` is pinned memory, `nvme` is files. */
export type Tier = 'device' | 'host' | 'nvme';

/** All tiers, nearest to compute first. */
export const TIERS = ['device', 'host', 'nvme'] as const satisfies readonly Tier[];

/** A link between tiers on which the engine counts bytes. */
export type Link = 'upload' | 'download' | 'nvme_read' | 'nvme_write';

/** All links, in the order in which summaries print them. */
export const LINKS = [
  'upload',
  'download',
  'nvme_read',
  'nvme_write',
] as const satisfies readonly Link[];

/**
 * Where operations of a step run, in order each: the device's compute queue, the links, and the
 * optimizer's workers.
 */
export type Lane = 'compute' | Link | 'update';

/** All lanes, in the order in which reports print them. */
export const LANES = ['compute', ...LINKS, 'update'] as const satisfies readonly Lane[];

/**
 * One state of a shard.
 *
 * - `param`: what compute reads; float32, or bfloat16 when `master_lo` exists.
 * - `master_lo`: the low 16 bits of the float32 master (bfloat16 mode only).
 * - `exp_avg`, `exp_avg_sq`: AdamW moments, float32.
 * - `grad`: the canonical gradient of the accumulated batch, float32.
 */
export type StateName = 'param' | 'master_lo' | 'exp_avg' | 'exp_avg_sq' | 'grad';

/** Element type of the weights that compute reads. The master weights are always float32. */
export type ComputeDtype = 'float32' | 'bfloat16';

/** Element type of stored bytes. */
export type ElementType = 'float32' | 'bfloat16' | 'float16' | 'int32' | 'uint16';

/** Bytes per element of `type`. */
export function elementBytes(type: ElementType): 2 | 4 {
  switch (type) {
    case 'float32':
    case 'int32':
      return 4;
    case 'bfloat16':
    case 'float16':
    case 'uint16':
      return 2;
  }
}

/** Number of a shard, global over the model and independent of tier and rank. */
export type ShardId = number;

/**
 * Elements per chunk: the unit of NVMe transfers, of checksums and of optimizer tiles.
 *
 * 256 Ki elements are 1 MiB of float32, the request size at which O_DIRECT reaches its plateau;
 * a multiple of the gradient norm's leaf (4096 elements) and of the disk's alignment.
 */
export const CHUNK_ELEMENTS = 262_144;

/** Elements per leaf of the gradient norm's summation tree. */
export const NORM_LEAF_ELEMENTS = 4096;

/** Alignment in bytes of every NVMe offset, length and buffer (O_DIRECT). */
export const IO_ALIGNMENT = 4096;
