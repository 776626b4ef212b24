/**
 * @file The tfjs backend `native`: tensors in one arena, kernels in C++.
 *
 * A tensor's entry (tfjs calls its key a data id) refers to a storage: a range of the arena, counted
 * by the entries over it. `alias` gives an entry more names or a storage more entries; nothing is
 * copied. A range is given back when its last entry goes.
 */
import * as tf from '@tensorflow/tfjs-core';
import type { BackendValues, DataType, TensorInfo } from '@tensorflow/tfjs-core';
import { alignUp } from '../../../core/bytes.js';
import { assert, SpillwayError } from '../../../core/errors.js';
import { RangeAllocator } from '../../host/range-allocator.js';
import { createSlab } from '../../host/slab.js';
import { native } from '../../native/binding.js';
import { dtypeBytes, nativeDtype, type NativeDtype } from './native-dtype.js';

/** Every tensor starts at a multiple of it, and is charged in multiples of it. */
export const TENSOR_ALIGNMENT = 64;

interface Storage {
  readonly offset: number;
  holders: number;
}

interface Entry {
  readonly storage: Storage;
  /** Of the entry's first byte, in the arena. */
  readonly offset: number;
  readonly length: number;
  readonly dtype: NativeDtype;
  refCount: number;
}

/** Options of a backend. */
export interface NativeBackendOptions {
  readonly budgetBytes: number;
  readonly threads: number;
}

export class NativeBackend extends tf.KernelBackend {
  readonly threads: number;
  readonly #arena: Uint8Array<SharedArrayBuffer>;
  readonly #allocator: RangeAllocator;
  readonly #entries = new Map<object, Entry>();

  constructor(options: NativeBackendOptions) {
    super();
    this.threads = options.threads;
    const bytes = alignUp(options.budgetBytes, TENSOR_ALIGNMENT);
    this.#arena = createSlab(bytes).bytes;
    this.#allocator = new RangeAllocator(bytes, TENSOR_ALIGNMENT);
  }

  /**
   * A new tensor of undefined content, to be written by a kernel.
   *
   * @throws DEVICE_OUT_OF_MEMORY; nothing changes then
   */
  makeOutput(shape: readonly number[], dtype: string): TensorInfo {
    const type = nativeDtype(dtype);
    const dataId = {};
    this.#create(dataId, tf.util.sizeFromShape([...shape]), type, 1);
    return { dataId, shape: [...shape], dtype: type };
  }

  /** Where the tensor's first element lies, for a kernel's arguments. Ask anew for each launch. */
  offsetOf(tensor: TensorInfo): number {
    return this.#entry(tensor.dataId).offset;
  }

  /** Appends a kernel to the compute queue. */
  launch(kernelId: number, args: readonly number[]): void {
    native()!.runKernelNow(kernelId, this.#arena, Float64Array.from(args), this.threads);
  }

  /**
   * A new tensor of `shape` over the memory of `x`, from element `elementOffset` on.
   */
  alias(x: TensorInfo, shape: readonly number[], elementOffset = 0): TensorInfo {
    const entry = this.#entry(x.dataId);
    const length = tf.util.sizeFromShape([...shape]);
    assert(elementOffset >= 0 && elementOffset + length <= entry.length, 'an alias lies in its x');
    if (length === entry.length) {
      entry.refCount += 1;
      return { dataId: x.dataId, shape: [...shape], dtype: entry.dtype };
    }
    const { storage, dtype } = entry;
    const dataId = {};
    storage.holders += 1;
    const offset = entry.offset + elementOffset * dtypeBytes(dtype);
    this.#entries.set(dataId, { storage, offset, length, dtype, refCount: 1 });
    return { dataId, shape: [...shape], dtype };
  }

  /**
   * Runs `body` with the offset of `byteLength` bytes for intermediate results of the kernels that
   * it launches; charged like a tensor while it runs.
   *
   * @throws DEVICE_OUT_OF_MEMORY
   */
  withScratch<T>(byteLength: number, body: (offset: number) => T): T {
    const offset = this.#allocate(byteLength);
    try {
      return body(offset);
    } finally {
      this.#allocator.release(offset);
    }
  }

  override write(values: BackendValues, shape: number[], dtype: DataType): object {
    const dataId = {};
    this.move(dataId, values, shape, dtype, 1);
    return dataId;
  }

  override move(
    dataId: object,
    values: BackendValues,
    shape: number[],
    dtype: DataType,
    refCount: number,
  ): void {
    const type = nativeDtype(dtype);
    const length = tf.util.sizeFromShape(shape);
    const entry = this.#create(dataId, length, type, refCount);
    const target = this.#view(entry);
    target.set(values as ArrayLike<number>);
  }

  override readSync(dataId: object): BackendValues {
    return this.#view(this.#entry(dataId)).slice();
  }

  override async read(dataId: object): Promise<BackendValues> {
    return this.readSync(dataId);
  }

  override disposeData(dataId: object, force = false): boolean {
    const entry = this.#entries.get(dataId);
    if (entry === undefined) return true;
    entry.refCount -= 1;
    if (!force && entry.refCount > 0) return false;
    this.#entries.delete(dataId);
    entry.storage.holders -= 1;
    if (entry.storage.holders === 0) this.#allocator.release(entry.storage.offset);
    return true;
  }

  override refCount(dataId: object): number {
    return this.#entries.get(dataId)?.refCount ?? 0;
  }

  override incRef(dataId: object): void {
    this.#entry(dataId).refCount += 1;
  }

  override numDataIds(): number {
    return this.#entries.size;
  }

  override memory(): { unreliable: boolean } {
    return { unreliable: false };
  }

  override floatPrecision(): 32 {
    return 32;
  }

  override epsilon(): number {
    return 1e-7;
  }

  #create(dataId: object, length: number, dtype: NativeDtype, refCount: number): Entry {
    const offset = this.#allocate(length * dtypeBytes(dtype));
    const entry = { storage: { offset, holders: 1 }, offset, length, dtype, refCount };
    this.#entries.set(dataId, entry);
    return entry;
  }

  #allocate(byteLength: number): number {
    const bytes = alignUp(Math.max(1, byteLength), TENSOR_ALIGNMENT);
    const offset = this.#allocator.allocate(bytes);
    if (offset !== undefined) return offset;
    throw new SpillwayError('DEVICE_OUT_OF_MEMORY', 'device memory is full; raise device_memory', {
      neededBytes: bytes,
      largestFreeBytes: this.#allocator.largestFreeBytes,
    });
  }

  #view(entry: Entry): Float32Array | Int32Array | Uint8Array {
    const start = this.#arena.byteOffset + entry.offset;
    switch (entry.dtype) {
      case 'float32':
        return new Float32Array(this.#arena.buffer, start, entry.length);
      case 'int32':
        return new Int32Array(this.#arena.buffer, start, entry.length);
      case 'bool':
        return new Uint8Array(this.#arena.buffer, start, entry.length);
    }
  }

  #entry(dataId: object): Entry {
    if (!this.#entries.has(dataId)) tf.engine().moveData(this, dataId);
    const entry = this.#entries.get(dataId);
    assert(entry !== undefined, 'the tensor has data');
    return entry;
  }
}
