/**
 * @file The operations of a step as they are written down: numbers, dependencies, and when outputs
 * leave the device.
 */
import { assert } from '../../core/errors.js';
import { LINKS, type Link } from '../../core/types.js';
import { RegionTracker } from './region-tracker.js';
import type { PassInput } from './step-input.js';
import type { WriteBytes } from './transfer-bytes.js';
import type { Action, Operation, OperationId, Output, Phase } from './step-plan.js';

type Mutable<T> = { -readonly [K in keyof T]: T[K] };
type MutableBytes = Partial<Record<Link, number>>;

interface PendingFree {
  readonly output: Output;
  /** The transfer that reads it. */
  readonly reader: OperationId;
  /** Number of the first compute operation that may free it. */
  readonly from: number;
}

const NO_GROUPS: readonly number[] = [];
const NO_BYTES: Operation['bytes'] = {};
const NOTHING_DUE: readonly PendingFree[] = [];

export class OperationList {
  readonly operations: Operation[] = [];
  /** Bytes of all operations, where these are not kept. */
  readonly bytes: Record<Link, number> = { upload: 0, download: 0, nvme_read: 0, nvme_write: 0 };
  readonly region = new RegionTracker();
  /** Of what is added from now on. */
  phase: Phase = 'forward';
  readonly #input: PassInput;
  readonly #keeps: boolean;
  readonly #spillLag: number;
  #count = 0;
  #computeCount = 0;
  #pending: PendingFree[] = [];
  readonly #fieldsSent = new Set<string>();

  /**
   * @param options `keeps` false: `operations` stays empty, only bytes are counted; `spillLag`: see
   *   StepInput
   */
  constructor(
    input: PassInput,
    { keeps = true, spillLag = 0 }: { readonly keeps?: boolean; readonly spillLag?: number } = {},
  ) {
    this.#input = input;
    this.#keeps = keeps;
    this.#spillLag = spillLag;
  }

  compute(
    action: Action,
    after: readonly OperationId[],
    claims: readonly object[],
    {
      fieldBytes = 0,
      fences = NO_GROUPS,
    }: { fieldBytes?: number; fences?: readonly number[] } = {},
  ): OperationId {
    const due = this.#takeDue();
    const moved = fieldBytes > 0 ? { upload: fieldBytes } : NO_BYTES;
    const id = this.add('compute', action, moved, after, fences, due);
    for (const claim of claims) this.region.use(claim, id);
    this.#computeCount += 1;
    return id;
  }

  /** An output leaves the device once `reader` has read it, `lag` compute operations from now. */
  freeLater(output: Output, reader: OperationId, lag: number = this.#spillLag): void {
    this.#pending.push({ output, reader, from: this.#computeCount + lag });
  }

  /** An output is freed once `user`'s kernels are launched. */
  drop(output: Output, user: OperationId): void {
    if (!this.#keeps) return;
    const old = this.operations[user]!;
    this.operations[user] = { ...old, drops: [...(old.drops ?? []), output] };
  }

  /** NVMe or host memory to the device. */
  fetch(
    action: Action,
    nvmeBytes: number,
    uploadBytes: number,
    after: readonly OperationId[],
    claim: object,
    fences?: readonly number[],
  ): OperationId {
    const bytes =
      nvmeBytes > 0 ? { upload: uploadBytes, nvme_read: nvmeBytes } : { upload: uploadBytes };
    const id = this.add('upload', action, bytes, after, fences);
    this.region.use(claim, id);
    return id;
  }

  /** The device to host memory, and on to NVMe. */
  write(
    action: Action,
    downloadBytes: number,
    nvme: WriteBytes | undefined,
    after: readonly OperationId[],
  ): OperationId {
    const bytes: MutableBytes = { download: downloadBytes };
    if (nvme !== undefined) addNvme(bytes, nvme);
    return this.add('download', action, bytes, after);
  }

  /** Host memory to a gradient's home. */
  hostWrite(
    action: Action,
    nvme: WriteBytes,
    after: readonly OperationId[],
    fences?: readonly number[],
  ): OperationId {
    const bytes: MutableBytes = {};
    addNvme(bytes, nvme);
    return this.add('nvme_write', action, bytes, after, fences);
  }

  add(
    lane: Operation['lane'],
    action: Action,
    bytes: Operation['bytes'],
    after: readonly OperationId[],
    fences: readonly number[] = NO_GROUPS,
    due: readonly PendingFree[] = NOTHING_DUE,
  ): OperationId {
    const id = this.#count;
    this.#count += 1;
    if (!this.#keeps) {
      for (const link of LINKS) this.bytes[link] += bytes[link] ?? 0;
      return id;
    }
    const sorted = sortedOnce(after);
    assert(
      sorted.length === 0 || (sorted[0]! >= 0 && sorted.at(-1)! < id),
      'operations wait for earlier ones',
    );
    // A large step has tens of thousands: keys are set one by one, which is cheaper than spreading.
    const operation: Mutable<Operation> = {
      id,
      lane,
      phase: this.phase,
      action,
      bytes,
      after: sorted,
    };
    if (due.length > 0) {
      operation.frees = due.map(({ output }) => output);
      operation.copied = [...new Set(due.map(({ reader }) => reader))];
    }
    if (fences.length > 0) operation.fences = fences;
    this.operations.push(operation);
    return id;
  }

  /** What may be freed now; it is pending no longer. */
  #takeDue(): readonly PendingFree[] {
    const now = this.#computeCount;
    if (!this.#pending.some(({ from }) => from <= now)) return NOTHING_DUE;
    const due = this.#pending.filter(({ from }) => from <= now);
    this.#pending = this.#pending.filter(({ from }) => from > now);
    return due;
  }

  /** Bytes of the fields that a block is the first to put on the device; they stay there. */
  fieldBytes(block: number, microBatch: number): number {
    const { reads = [], readsIfPresent = [] } = this.#input.blocks[block]!;
    const { fieldBytes } = this.#input.microBatches[microBatch]!;
    let bytes = 0;
    for (const name of [...reads, ...readsIfPresent]) {
      const key = `${microBatch}/${name}`;
      if (this.#fieldsSent.has(key)) continue;
      this.#fieldsSent.add(key);
      bytes += fieldBytes[name] ?? 0;
    }
    return bytes;
  }
}

/** The same numbers, ascending, each once. */
function sortedOnce(ids: readonly OperationId[]): readonly OperationId[] {
  // Most operations wait for one or two.
  if (ids.length < 2) return ids;
  if (ids.length === 2) {
    const [a, b] = ids as [OperationId, OperationId];
    if (a === b) return [a];
    return a < b ? ids : [b, a];
  }
  return [...new Set(ids)].sort((a, b) => a - b);
}

function addNvme(bytes: MutableBytes, { read, written }: WriteBytes): void {
  if (read > 0) bytes.nvme_read = read;
  if (written > 0) bytes.nvme_write = written;
}
