/**
 * @file What one device pays for: the memory blocks behind tfjs tensor data.
 *
 * tfjs's cpu kernels may store a view of another tensor's array (a contiguous slice does), so the
 * unit of account is the ArrayBuffer: charged when the first holder appears, released with the
 * last one. SharedArrayBuffers are never charged here: they belong to an arena's lease.
 */
import { SpillwayError } from '../../core/errors.js';
import type { ByteLedger } from './byte-ledger.js';

/** A tensor's entry in tfjs's cpu backend: one typed array, or byte strings. */
export type StoredValues = ArrayBufferView | readonly Uint8Array[];

/** Charges one ledger for the buffers that tensor data and uploads hold. */
export class DataAccount {
  readonly #ledger: ByteLedger;
  readonly #holders = new Map<ArrayBufferLike, number>();
  readonly #buffersOf = new Map<object, readonly ArrayBufferLike[]>();

  constructor(ledger: ByteLedger) {
    this.#ledger = ledger;
  }

  /** Identifiers of the data that this account pays for. */
  get dataIds(): object[] {
    return [...this.#buffersOf.keys()];
  }

  /** @throws DEVICE_OUT_OF_MEMORY; nothing changes then */
  add(dataId: object, values: StoredValues, label: string): void {
    const views = ArrayBuffer.isView(values) ? [values] : values;
    const held: ArrayBufferLike[] = [];
    try {
      for (const { buffer } of views) {
        this.hold(buffer, label);
        held.push(buffer);
      }
    } catch (error) {
      for (const buffer of held) this.drop(buffer);
      throw error;
    }
    this.#buffersOf.set(dataId, held);
  }

  remove(dataId: object): void {
    for (const buffer of this.#buffersOf.get(dataId) ?? []) this.drop(buffer);
    this.#buffersOf.delete(dataId);
  }

  /** Becomes a holder of `buffer`. @throws DEVICE_OUT_OF_MEMORY; nothing changes then */
  hold(buffer: ArrayBufferLike, label: string): void {
    if (buffer instanceof SharedArrayBuffer) return;
    const count = this.#holders.get(buffer) ?? 0;
    if (count === 0) this.#ledger.charge(buffer.byteLength, label);
    this.#holders.set(buffer, count + 1);
  }

  /**
   * Zeroed memory, charged before it is allocated; the caller is its first holder.
   *
   * @throws DEVICE_OUT_OF_MEMORY, also when the process has no such memory; nothing changes then
   */
  allocate(byteLength: number, label: string): ArrayBuffer {
    this.#ledger.charge(byteLength, label);
    try {
      const buffer = new ArrayBuffer(byteLength);
      this.#holders.set(buffer, 1);
      return buffer;
    } catch (error) {
      this.#ledger.release(byteLength);
      throw processOutOfMemory(byteLength, label, error);
    }
  }

  /** Ends one `hold`, or the holding that `allocate` began. */
  drop(buffer: ArrayBufferLike): void {
    const count = this.#holders.get(buffer);
    if (count === undefined) return;
    if (count > 1) {
      this.#holders.set(buffer, count - 1);
      return;
    }
    this.#holders.delete(buffer);
    this.#ledger.release(buffer.byteLength);
  }
}

/** The error for an allocation within the budget that the process could not make. */
export function processOutOfMemory(
  neededBytes: number,
  label: string,
  cause: unknown,
): SpillwayError {
  return new SpillwayError(
    'DEVICE_OUT_OF_MEMORY',
    `the process has no memory for ${label}; lower device_memory or free memory`,
    { neededBytes },
    cause,
  );
}
