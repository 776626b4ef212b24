/**
 * @file What a range of a stored state costs on the links: whole, padded chunks on NVMe, elements
 * on the device's link. Mirrors `TierManager.read` and `.write`; a test compares the two.
 */
import { alignUp } from '../../core/bytes.js';
import { CHUNK_ELEMENTS, IO_ALIGNMENT, type StateName } from '../../core/types.js';
import { homeOf, stateType, type MemoryPlan } from './placement.js';
import { segmentsOf, type ParamAddress, type ParameterGroup } from './parameter-layout.js';
import type { ComputeDtype } from '../../core/types.js';

/** Bytes that a write moves on NVMe. */
export interface WriteBytes {
  readonly read: number;
  readonly written: number;
}

/** NVMe bytes of reading elements `start … start + count` of a state of `total` elements. */
export function chunkBytes(
  total: number,
  elementBytes: number,
  start: number,
  count: number,
): number {
  if (count === 0) return 0;
  const first = Math.floor(start / CHUNK_ELEMENTS);
  const last = Math.floor((start + count - 1) / CHUNK_ELEMENTS);
  const before = (last - first) * alignUp(CHUNK_ELEMENTS * elementBytes, IO_ALIGNMENT);
  return before + oneChunkBytes(total, elementBytes, last);
}

/** Bytes of chunk `index`; the last one may be shorter. */
function oneChunkBytes(total: number, elementBytes: number, index: number): number {
  const length = Math.min(CHUNK_ELEMENTS, total - index * CHUNK_ELEMENTS);
  return alignUp(length * elementBytes, IO_ALIGNMENT);
}

/**
 * NVMe bytes of writing that range.
 *
 * @param add each chunk is read first; else only those that the range covers in part, unless
 *   `preserve` is false
 */
export function writeBytes(
  total: number,
  elementBytes: number,
  start: number,
  count: number,
  { add, preserve = true }: { add: boolean; preserve?: boolean },
): WriteBytes {
  const written = chunkBytes(total, elementBytes, start, count);
  if (add) return { read: written, written };
  if (!preserve || count === 0) return { read: 0, written };
  const end = start + count;
  const first = Math.floor(start / CHUNK_ELEMENTS);
  const last = Math.floor((end - 1) / CHUNK_ELEMENTS);
  // Only the first and the last chunk may be covered in part.
  const isPartial = (index: number): boolean =>
    start > index * CHUNK_ELEMENTS || end < Math.min((index + 1) * CHUNK_ELEMENTS, total);
  const read = [...new Set([first, last])]
    .filter(isPartial)
    .reduce((sum, index) => sum + oneChunkBytes(total, elementBytes, index), 0);
  return { read, written };
}

/** Element sizes and homes of all states: what the functions below need to know. */
export interface StateHomes {
  readonly homes: MemoryPlan['homes'];
  readonly dtype: ComputeDtype;
}

/** Bytes per stored element of a state. */
export function storedBytes(state: StateName, dtype: ComputeDtype): number {
  return stateType(state, dtype) === 'float32' ? 4 : 2;
}

/** NVMe bytes of reading elements `start …` of a group's state; 0 where it lives in memory. */
export function groupReadBytes(
  group: ParameterGroup,
  state: StateName,
  start: number,
  count: number,
  { homes, dtype }: StateHomes,
): number {
  if (homeOf(homes[group.index]!, state) !== 'nvme') return 0;
  return segmentsOf(group, start, count).reduce(
    (sum, segment) =>
      sum +
      chunkBytes(segment.shard.length, storedBytes(state, dtype), segment.start, segment.length),
    0,
  );
}

/**
 * NVMe bytes of reading rows `indices` of a table alone: each chunk that holds one, once. An index
 * outside the table counts nothing: whoever reads it refuses it.
 */
export function sparseReadBytes(
  group: ParameterGroup,
  { offset, spec, length }: ParamAddress,
  indices: Iterable<number>,
  { homes, dtype }: StateHomes,
): number {
  if (homeOf(homes[group.index]!, 'param') !== 'nvme') return 0;
  const rows = spec.shape[0]!;
  const columns = length / rows;
  const elementBytes = storedBytes('param', dtype);
  const chunks = new Map<string, number>();
  for (const row of new Set(indices)) {
    if (row < 0 || row >= rows) continue;
    for (const { shard, start, length: count } of segmentsOf(
      group,
      offset + row * columns,
      columns,
    )) {
      const last = Math.floor((start + count - 1) / CHUNK_ELEMENTS);
      for (let index = Math.floor(start / CHUNK_ELEMENTS); index <= last; index += 1) {
        chunks.set(`${shard.id}/${index}`, oneChunkBytes(shard.length, elementBytes, index));
      }
    }
  }
  return [...chunks.values()].reduce((sum, bytes) => sum + bytes, 0);
}

/** NVMe bytes of writing elements `start …` of a group's gradient; none where it lives in memory. */
export function gradientWriteBytes(
  group: ParameterGroup,
  start: number,
  count: number,
  add: boolean,
  { homes }: StateHomes,
): WriteBytes {
  const none = { read: 0, written: 0 };
  if (homes[group.index]!.grad !== 'nvme') return none;
  return segmentsOf(group, start, count).reduce((sum, segment) => {
    const bytes = writeBytes(segment.shard.length, 4, segment.start, segment.length, { add });
    return { read: sum.read + bytes.read, written: sum.written + bytes.written };
  }, none);
}

/** Gradients of parameters that lie next to one another in a group, written as one range. */
export interface GradientRun {
  readonly group: ParameterGroup;
  readonly start: number;
  readonly add: boolean;
  readonly params: readonly ParamAddress[];
}

/** Cuts gradients into runs; `addsTo` tells whether one is added to what is there. */
export function gradientRuns(
  addresses: readonly ParamAddress[],
  groups: readonly ParameterGroup[],
  addsTo: (address: ParamAddress) => boolean,
): GradientRun[] {
  const sorted = [...addresses].sort((a, b) => a.group - b.group || a.offset - b.offset);
  const runs: { group: ParameterGroup; start: number; add: boolean; params: ParamAddress[] }[] = [];
  for (const address of sorted) {
    const add = addsTo(address);
    const last = runs.at(-1);
    const end = last?.params.at(-1);
    if (
      last !== undefined &&
      end !== undefined &&
      last.add === add &&
      last.group.index === address.group &&
      end.offset + end.length === address.offset
    ) {
      last.params.push(address);
    } else {
      runs.push({ group: groups[address.group]!, start: address.offset, add, params: [address] });
    }
  }
  return runs;
}

/** Elements of a run. */
export function runLength(run: GradientRun): number {
  return run.params.reduce((sum, { length }) => sum + length, 0);
}
