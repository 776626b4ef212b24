/**
 * @file Gradient of a table of which only some rows are read: summed by row, on the host.
 *
 * A micro-batch's contribution is complete before it is added: rows that occur several times are
 * summed in ascending position first, then each touched row is added to the step's sum. That is
 * the canonical order (docs/ARCHITECTURE.md, "Canonical gradients"), kept in rows.
 *
 * Owns two leases: the sum over micro-batches, and one micro-batch's contribution.
 */
import { assert } from '../../core/errors.js';
import type { MemoryArena, MemoryLease } from '../../tiers/host/host-buffer.js';
import { kernels } from '../../tiers/native/binding.js';

/** Elements of row gradients that are downloaded at a time. */
const PIECE_ELEMENTS = 65_536;

/** Rows kept in one lease, in order of first appearance. */
class RowBuffer {
  readonly #lease: MemoryLease;
  readonly #columns: number;
  readonly slots = new Map<number, number>();

  constructor(arena: MemoryArena, rowCount: number, columns: number, label: string) {
    this.#lease = arena.lease(rowCount * columns * 4, label);
    this.#columns = columns;
  }

  /** The row's values; undefined when it was never added to. */
  get(row: number): Float32Array<SharedArrayBuffer> | undefined {
    const slot = this.slots.get(row);
    return slot === undefined ? undefined : this.#view(slot);
  }

  /** Adds `values` to the row in float32; the first addition copies. */
  add(row: number, values: Float32Array): void {
    const present = this.get(row);
    if (present !== undefined) {
      kernels().accumulate(present, values);
      return;
    }
    const slot = this.slots.size;
    this.slots.set(row, slot);
    this.#view(slot).set(values);
  }

  dispose(): void {
    this.#lease.dispose();
  }

  #view(slot: number): Float32Array<SharedArrayBuffer> {
    const { buffer, byteOffset, byteLength } = this.#lease.bytes;
    const offset = slot * this.#columns * 4;
    assert(offset + this.#columns * 4 <= byteLength, 'the row buffer holds the largest batch');
    return new Float32Array(buffer, byteOffset + offset, this.#columns);
  }
}

export class RowGradients {
  readonly columns: number;
  readonly #sum: RowBuffer;
  readonly #one: RowBuffer | undefined;
  /** Rows on their way from the device. */
  readonly #piece: Float32Array;

  /**
   * @param rowsPerMicroBatch most rows that one micro-batch gathers
   * @throws HOST_OUT_OF_MEMORY
   */
  constructor(
    arena: MemoryArena,
    options: { rowsPerMicroBatch: number; microBatchCount: number; columns: number; label: string },
  ) {
    const { rowsPerMicroBatch, microBatchCount, columns, label } = options;
    this.columns = columns;
    this.#piece = new Float32Array(columns * Math.max(1, Math.floor(PIECE_ELEMENTS / columns)));
    this.#sum = new RowBuffer(arena, rowsPerMicroBatch * microBatchCount, columns, `${label} rows`);
    if (microBatchCount > 1) {
      this.#one = new RowBuffer(
        arena,
        rowsPerMicroBatch,
        columns,
        `${label} rows of a micro-batch`,
      );
    }
  }

  /**
   * Adds one micro-batch's contribution.
   *
   * @param read copies elements `offset …` of the gradient [indices.length, columns] to `target`
   */
  async addMicroBatch(
    indices: Int32Array,
    read: (offset: number, target: Float32Array) => Promise<void>,
  ): Promise<void> {
    const target = this.#one ?? this.#sum;
    const { columns } = this;
    const pieceRows = this.#piece.length / columns;
    for (let first = 0; first < indices.length; first += pieceRows) {
      const rows = indices.subarray(first, first + pieceRows);
      await read(first * columns, this.#piece.subarray(0, rows.length * columns));
      for (const [at, row] of rows.entries()) {
        target.add(row, this.#piece.subarray(at * columns, (at + 1) * columns));
      }
    }
    if (this.#one === undefined) return;
    for (const row of this.#one.slots.keys()) {
      const contribution = this.#one.get(row);
      if (contribution !== undefined) this.#sum.add(row, contribution);
    }
    this.#one.slots.clear();
  }

  /** Fills elements `offset …` of the flattened table: touched rows, zeros elsewhere. */
  fill(offset: number, target: Float32Array): void {
    target.fill(0);
    const firstRow = Math.floor(offset / this.columns);
    const lastRow = Math.floor((offset + target.length - 1) / this.columns);
    const copy = (row: number): void => {
      const values = this.#sum.get(row);
      if (values === undefined) return;
      const start = row * this.columns - offset;
      const from = Math.max(0, -start);
      const to = Math.min(this.columns, target.length - start);
      target.set(values.subarray(from, to), start + from);
    };
    if (lastRow - firstRow < this.#sum.slots.size) {
      for (let row = firstRow; row <= lastRow; row += 1) copy(row);
    } else {
      for (const row of this.#sum.slots.keys()) if (row >= firstRow && row <= lastRow) copy(row);
    }
  }

  /** Forgets the step's sum. */
  reset(): void {
    this.#sum.slots.clear();
    this.#one?.slots.clear();
  }

  /** Idempotent. */
  dispose(): void {
    this.#sum.dispose();
    this.#one?.dispose();
  }
}
