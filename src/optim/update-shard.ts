/**
 * @file The AdamW update of one shard, on the thread that calls it.
 *
 * Goes through the shard in tiles: of `CHUNK_ELEMENTS` elements when a state is on NVMe, which
 * streams through staging memory, else longer ones. States in memory are updated in place. AdamW is elementwise and the kernel gives
 * the same bits at every length, so neither tiles nor homes change a bit.
 */
import { SpillwayError } from '../../core/errors.js';
import { CHUNK_ELEMENTS, type StateName } from '../../core/types.js';
import type { AdamwScalars, Kernels } from '../../tiers/native/native-binding.js';
import type { SyncIo } from '../../tiers/nvme/io-backend.js';
import type { StateLocation } from '../../tiers/state-location.js';
import { NvmeTiles, type NvmeState } from './nvme-tiles.js';
import type { ShardUpdate, ShardUpdateResult } from './shard-update.js';

/** What a worker lends to an update. */
export interface UpdateContext {
  readonly kernels: Kernels;
  /** Null when no state may be on NVMe. */
  readonly io: SyncIo | null;
  readonly staging: Uint8Array<SharedArrayBuffer>;
  readonly depth: number;
  /** Polled once per tile. */
  readonly isCancelled: () => boolean;
}

/**
 * Elements per tile when all states are in memory: 28 MiB of traffic. A quarter of it costs 3 to
 * 5 % in calls and cold starts; a cancelled update waits some milliseconds (bench/optimizer.ts).
 */
const MEMORY_TILE_ELEMENTS = 4 * CHUNK_ELEMENTS;

/** Elements per step when changes are counted: 64 KiB of old bits, which stay in the cache. */
const COUNT_ELEMENTS = 16_384;

/** One state of the shard as the tile loop sees it. */
interface TiledState {
  readonly name: StateName;
  readonly location: StateLocation;
  readonly elementBytes: 2 | 4;
  readonly writable: boolean;
}

type Bytes = Uint8Array<SharedArrayBuffer>;

/**
 * Updates the shard in place.
 *
 * @returns null when cancelled between tiles. Then, and after an error, earlier tiles are updated
 *   and later ones are not; no request is in flight.
 * @throws STATE_CORRUPT, IO_ERROR, IO_SHORT, NVME_FULL; INTERNAL for a job that contradicts itself
 */
export function updateShard(job: ShardUpdate, context: UpdateContext): ShardUpdateResult | null {
  const states = statesOf(job);
  for (const state of states) checkState(state, job.length);
  const tiles = openTiles(states, job.length, context);
  const tileElements = tiles === null ? MEMORY_TILE_ELEMENTS : CHUNK_ELEMENTS;
  const bytesRead = context.io?.bytesRead ?? 0;
  const bytesWritten = context.io?.bytesWritten ?? 0;
  let changedCount = 0;
  try {
    for (let tile = 0; tile * tileElements < job.length; tile += 1) {
      if (context.isCancelled()) {
        tiles?.finish();
        return null;
      }
      tiles?.readAhead(tile);
      const first = tile * tileElements;
      const elements = Math.min(tileElements, job.length - first);
      const buffers = tileBytes(states, first, elements, tiles?.take(tile) ?? []);
      if (job.countChanges === true) {
        changedCount += updateAndCount(context.kernels, buffers, job);
      } else {
        updateTile(context.kernels, buffers, job);
      }
      tiles?.put(tile);
    }
    tiles?.finish();
  } catch (error) {
    tiles?.abandon();
    throw error;
  }
  return {
    nvmeReadBytes: (context.io?.bytesRead ?? 0) - bytesRead,
    nvmeWrittenBytes: (context.io?.bytesWritten ?? 0) - bytesWritten,
    ...(job.countChanges === true && { changedCount }),
  };
}

/** The shard's states in the order in which the kernel takes them. */
function statesOf(job: ShardUpdate): TiledState[] {
  const split = job.masterLo !== undefined;
  const state = (
    name: StateName,
    location: StateLocation,
    elementBytes: 2 | 4 = 4,
  ): TiledState => ({ name, location, elementBytes, writable: name !== 'grad' });
  return [
    state('param', job.param, split ? 2 : 4),
    ...(split ? [state('master_lo', job.masterLo, 2)] : []),
    state('grad', job.grad),
    state('exp_avg', job.expAvg),
    state('exp_avg_sq', job.expAvgSq),
  ];
}

function checkState({ name, location, elementBytes }: TiledState, length: number): void {
  if (location.kind === 'nvme') return; // NvmeTiles checks it.
  const { byteLength, byteOffset } = location.bytes;
  if (byteLength !== length * elementBytes || byteOffset % elementBytes !== 0) {
    throw new SpillwayError('INTERNAL', 'location of a state in memory does not fit its shard', {
      state: name,
      length,
      byteLength,
      byteOffset,
    });
  }
}

/** Streams of the states on NVMe; null when there is none. */
function openTiles(
  states: readonly TiledState[],
  length: number,
  { io, depth, staging, kernels }: UpdateContext,
): NvmeTiles | null {
  const streamed = states.flatMap((state): NvmeState[] =>
    state.location.kind === 'nvme' ? [{ ...state, location: state.location }] : [],
  );
  if (streamed.length === 0) return null;
  if (io === null) {
    throw new SpillwayError('INTERNAL', 'the optimizer pool was created without NVMe states', {
      states: streamed.map((state) => state.name),
    });
  }
  return new NvmeTiles(streamed, length, depth, staging, io, (bytes) => kernels.crc32c(bytes));
}

/** Each state's elements of one tile, without padding: in memory, or in `staged` (in order). */
function tileBytes(
  states: readonly TiledState[],
  first: number,
  elements: number,
  staged: readonly Bytes[],
): Bytes[] {
  let next = 0;
  return states.map(({ location, elementBytes }) => {
    if (location.kind === 'memory') {
      return location.bytes.subarray(first * elementBytes, (first + elements) * elementBytes);
    }
    const bytes = staged[next]!;
    next += 1;
    return bytes.subarray(0, elements * elementBytes);
  });
}

/** Runs the kernel over `buffers`, which are in the order of `statesOf`. */
function updateTile(kernels: Kernels, buffers: readonly Bytes[], job: ShardUpdate): void {
  const scalars: AdamwScalars = job.scalars;
  const [grad, expAvg, expAvgSq] = buffers.slice(-3).map(floats) as [
    Float32Array,
    Float32Array,
    Float32Array,
  ];
  const param = buffers[0]!;
  if (job.masterLo === undefined) {
    kernels.adamw(floats(param), grad, expAvg, expAvgSq, scalars);
  } else {
    kernels.adamwSplit(words(param), words(buffers[1]!), grad, expAvg, expAvgSq, scalars);
  }
}

/** The same in steps of `COUNT_ELEMENTS`. @returns elements whose float32 master changed */
function updateAndCount(kernels: Kernels, buffers: readonly Bytes[], job: ShardUpdate): number {
  const split = job.masterLo !== undefined;
  const elements = (buffers.at(-1)?.byteLength ?? 0) / 4;
  let changed = 0;
  for (let first = 0; first < elements; first += COUNT_ELEMENTS) {
    const end = Math.min(elements, first + COUNT_ELEMENTS);
    const part = buffers.map((bytes) => {
      const elementBytes = bytes.byteLength / elements;
      return bytes.subarray(first * elementBytes, end * elementBytes);
    });
    // A split master has changed when either half has: joining the halves is one to one.
    const now = split ? [words(part[0]!), words(part[1]!)] : [bits(part[0]!)];
    const old = now.map((values) => values.slice());
    updateTile(kernels, part, job);
    changed += countDifferences(now, old);
  }
  return changed;
}

/** Elements at which any half of `now` differs from that of `old`. */
function countDifferences(
  now: readonly (Uint16Array | Uint32Array)[],
  old: readonly (Uint16Array | Uint32Array)[],
): number {
  const first = now[0]!;
  const firstOld = old[0]!;
  const second = now[1] ?? first;
  const secondOld = old[1] ?? firstOld;
  let count = 0;
  for (let i = 0; i < first.length; i += 1) {
    if (first[i] !== firstOld[i] || second[i] !== secondOld[i]) count += 1;
  }
  return count;
}

function floats(bytes: Bytes): Float32Array<SharedArrayBuffer> {
  return new Float32Array(bytes.buffer, bytes.byteOffset, bytes.byteLength / 4);
}

function bits(bytes: Bytes): Uint32Array<SharedArrayBuffer> {
  return new Uint32Array(bytes.buffer, bytes.byteOffset, bytes.byteLength / 4);
}

function words(bytes: Bytes): Uint16Array<SharedArrayBuffer> {
  return new Uint16Array(bytes.buffer, bytes.byteOffset, bytes.byteLength / 2);
}
