/**
 * @file The tfjs backend `native`: tensors in one arena, kernels in C++ that run behind.
 *
 * A tensor's entry (tfjs calls its key a data id) refers to a storage, counted by the entries over
 * it. `alias` gives an entry another name, or a storage another entry; nothing is copied. Launching
 * returns at once; `readSync` sleeps until the compute queue has caught up, `read` resolves when
 * the download queue has copied.
 *
 * Several backends may live side by side, one per device; tfjs asks a tensor's own backend, and
 * moves a tensor that a kernel of another backend reads.
 *
 * Owns the arena's entries and, through the arena, the queues.
 */
import * as tf from '@tensorflow/tfjs-core';
import type { BackendTimingInfo, BackendValues, DataType, TensorInfo } from '@tensorflow/tfjs-core';
import { assert, SpillwayError } from '../../../core/errors.js';
import { COMPUTE, DOWNLOAD, UPLOAD, type DeviceQueues } from './command-queues.js';
import { deviceThreads } from './device-threads.js';
import { kernelIdOf } from './kernel-id.js';
import { MetaQueues } from './meta-queues.js';
import { dtypeBytes, nativeArray, nativeDtype } from './native-dtype.js';
import type { NativeArray, NativeDtype } from './native-dtype.js';
import { TensorArena, type TensorStorage } from './tensor-arena.js';

interface Entry {
  readonly storage: TensorStorage;
  /** Of its first element. */
  readonly address: number;
  readonly length: number;
  readonly dtype: NativeDtype;
  /** Elements of a float32 tensor are stored as bfloat16; `widened` is its float32 copy, once made. */
  readonly isBfloat16?: boolean;
  widened?: TensorStorage;
  /** tfjs's count of tensors and kernels that use the entry. */
  refCount: number;
}

/** Options of a backend. */
export interface NativeBackendOptions {
  /** Most bytes that tensors may hold together. */
  readonly budgetBytes: number;
  /** Threads that kernels run on; default `deviceThreads()`. */
  readonly threads?: number;
  /** Compute shapes and allocations only. */
  readonly meta?: boolean;
}

export class NativeBackend extends tf.KernelBackend {
  readonly arena: TensorArena;
  readonly queues: DeviceQueues;
  /** Calls of kernels that ran in JavaScript because the addon has none, by name. */
  readonly fallbackCounts = new Map<string, number>();
  readonly #entries = new Map<object, Entry>();
  #disposed = false;

  /** @throws DEVICE_UNAVAILABLE without the addon; CONFIG_INVALID for a wrong SPILLWAY_THREADS */
  constructor(options: NativeBackendOptions) {
    super();
    this.arena =
      options.meta === true
        ? TensorArena.createMeta(options.budgetBytes, new MetaQueues())
        : TensorArena.create(options.budgetBytes, options.threads ?? deviceThreads());
    this.queues = this.arena.queues;
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

  /**
   * Where the tensor's first element lies, for an argument of the next launch. Ask again for each
   * launch: asking is what puts the launch behind the tensor's upload.
   */
  offsetOf(tensor: TensorInfo): number {
    const { storage, address } = this.#plain(this.#entry(tensor.dataId));
    this.arena.useInKernel(storage);
    return address;
  }

  /**
   * The same for a kernel that also reads bfloat16: float32 tensors that were uploaded to be kept
   * so are not widened. For other kernels `offsetOf` makes, and charges, a float32 copy.
   */
  operandOf(tensor: TensorInfo): { offset: number; type: 'float32' | 'bfloat16' } {
    const { storage, address, isBfloat16 } = this.#entry(tensor.dataId);
    this.arena.useInKernel(storage);
    return { offset: address, type: isBfloat16 === true ? 'bfloat16' : 'float32' };
  }

  /** Appends a kernel to the compute queue; it returns before the kernel runs. */
  launch(kernelId: number, args: readonly number[]): void {
    this.queues.launch(kernelId, args);
  }

  /** A new tensor of `shape` over the memory of `x`, from element `elementOffset` on. */
  alias(x: TensorInfo, shape: readonly number[], elementOffset = 0): TensorInfo {
    const entry = this.#entry(x.dataId);
    const length = tf.util.sizeFromShape([...shape]);
    assert(elementOffset >= 0 && elementOffset + length <= entry.length, 'an alias lies in its x');
    if (length === entry.length) {
      entry.refCount += 1;
      return { dataId: x.dataId, shape: [...shape], dtype: entry.dtype };
    }
    const { dtype } = entry;
    const { storage, address: start } = this.#plain(entry);
    storage.holders += 1;
    const address = start + elementOffset * dtypeBytes(dtype);
    const dataId = this.#insert({ storage, address, length, dtype, refCount: 1 });
    return { dataId, shape: [...shape], dtype };
  }

  /**
   * Runs `body` with the offset of `byteLength` bytes for intermediate results of the kernels that
   * it launches; charged like a tensor while `body` runs.
   *
   * @throws DEVICE_OUT_OF_MEMORY
   */
  withScratch<T>(byteLength: number, body: (offset: number) => T): T {
    const storage = this.arena.allocate(byteLength, COMPUTE, 'scratch of a kernel');
    try {
      return body(storage.address);
    } finally {
      this.arena.release(storage);
    }
  }

  /**
   * A data id over `storage`, of which the caller hands over its holder.
   *
   * @param kept bfloat16 for a float32 tensor whose elements are stored so
   */
  adopt(
    storage: TensorStorage,
    length: number,
    dtype: NativeDtype,
    kept: NativeDtype | 'bfloat16' = dtype,
  ): object {
    const { address } = storage;
    const isBfloat16 = kept === 'bfloat16';
    return this.#insert({ storage, address, length, dtype, isBfloat16, refCount: 1 });
  }

  /** Whether the elements lie in memory that the arena does not own. */
  isBorrowed(dataId: object): boolean {
    return this.#entry(dataId).storage.chargedBytes === undefined;
  }

  /** What has been launched fills the tensor's entry, and nothing later writes to it. */
  complete(dataId: object): void {
    this.arena.complete(this.#entry(dataId).storage);
  }

  /** Copies `target.length` elements, from element `offset` of a tensor's entry on. */
  download(dataId: object, offset: number, target: NativeArray): Promise<void> {
    const { storage, address } = this.#plain(this.#entry(dataId));
    this.arena.useInDownload(storage);
    const bytes = bytesOf(target);
    const done = this.queues.download(address + offset * target.BYTES_PER_ELEMENT, bytes);
    storage.downloadSequence = this.queues.submitted(DOWNLOAD);
    return done;
  }

  /** Frees entries that no tensor refers to: what a kernel that failed had made for itself. */
  freeOrphans(): void {
    const { tensorInfo } = engineState();
    for (const dataId of [...this.#entries.keys()]) {
      if (!tensorInfo.has(dataId)) this.disposeData(dataId, true);
    }
  }

  override write(values: BackendValues, shape: number[], dtype: DataType): object {
    const dataId = {};
    this.move(dataId, values, shape, dtype, 1);
    return dataId;
  }

  /** Called by tfjs with the values of a tensor that lived on another backend, too. */
  override move(
    dataId: object,
    values: BackendValues,
    shape: number[],
    dtype: DataType,
    refCount: number,
  ): void {
    const type = nativeDtype(dtype);
    const entry = this.#create(dataId, tf.util.sizeFromShape(shape), type, refCount);
    const typed = typedValues(type, values as NativeArray);
    assert(typed.length === entry.length, 'the values fill the shape', { length: typed.length });
    if (typed.length > 0) this.queues.write(entry.address, bytesOf(typed));
  }

  override readSync(dataId: object): NativeArray {
    const entry = this.#entry(dataId);
    const { length, dtype } = entry;
    const { storage, address } = this.#plain(entry);
    if (storage.isComputed) this.queues.block(COMPUTE);
    if (storage.uploadSequence > 0) this.queues.block(UPLOAD);
    const target = nativeArray(dtype, length);
    this.queues.read(address, bytesOf(target));
    return target;
  }

  override async read(dataId: object): Promise<NativeArray> {
    const { length, dtype } = this.#entry(dataId);
    const target = nativeArray(dtype, length);
    await this.download(dataId, 0, target);
    return target;
  }

  override disposeData(dataId: object, force = false): boolean {
    const entry = this.#entries.get(dataId);
    if (entry === undefined) return true;
    entry.refCount -= 1;
    if (!force && entry.refCount > 0) return false;
    this.#entries.delete(dataId);
    this.arena.release(entry.storage);
    if (entry.widened !== undefined) this.arena.release(entry.widened);
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

  override timerAvailable(): boolean {
    return true;
  }

  /** Time of `body`, which runs at once, until the kernels that it launched have run. */
  override time(body: () => void): Promise<BackendTimingInfo> {
    this.queues.block(COMPUTE);
    const start = performance.now();
    body();
    const done = this.queues.done(COMPUTE, this.queues.submitted(COMPUTE));
    return done.then(() => ({ kernelMs: performance.now() - start }));
  }

  /** Waits for everything submitted, then lets threads and memory go. Idempotent. */
  async close(): Promise<void> {
    if (this.#disposed) return;
    this.#disposed = true;
    for (const dataId of [...this.#entries.keys()]) this.disposeData(dataId, true);
    await this.queues.close();
  }

  /** tfjs's, synchronous: sleeps until everything submitted has run. */
  override dispose(): void {
    if (this.#disposed) return;
    this.#disposed = true;
    for (const dataId of [...this.#entries.keys()]) this.disposeData(dataId, true);
    this.queues.closeNow();
  }

  /** Where the elements lie as their type says. @throws DEVICE_OUT_OF_MEMORY for a float32 copy */
  #plain(entry: Entry): { readonly storage: TensorStorage; readonly address: number } {
    if (entry.isBfloat16 !== true) return entry;
    if (entry.widened === undefined) {
      const { storage, address, length } = entry;
      entry.widened = this.arena.allocate(length * 4, COMPUTE, 'a float32 copy of bfloat16');
      this.arena.useInKernel(storage);
      this.launch(kernelIdOf('widenBfloat16'), [entry.widened.address, address, length]);
    }
    return { storage: entry.widened, address: entry.widened.address };
  }

  #create(dataId: object, length: number, dtype: NativeDtype, refCount: number): Entry {
    this.#assertOpen();
    const byteLength = length * dtypeBytes(dtype);
    const storage = this.arena.allocate(byteLength, COMPUTE, `a ${dtype} tensor`);
    const entry = { storage, address: storage.address, length, dtype, refCount };
    this.#entries.set(dataId, entry);
    return entry;
  }

  #insert(entry: Entry): object {
    const dataId = {};
    this.#entries.set(dataId, entry);
    return dataId;
  }

  #entry(dataId: object): Entry {
    const entry = this.#entries.get(dataId);
    if (entry !== undefined) return entry;
    this.#assertOpen();
    // The tensor lives on another backend. tfjs frees it there before it calls `move`, which
    // therefore must not fail.
    const info = engineState().tensorInfo.get(dataId);
    assert(info !== undefined, 'the tensor is alive');
    const bytes = tf.util.sizeFromShape(info.shape) * dtypeBytes(nativeDtype(info.dtype));
    this.arena.check(bytes, `a ${info.dtype} tensor of another backend`);
    tf.engine().moveData(this, dataId);
    return this.#entries.get(dataId)!;
  }

  #assertOpen(): void {
    if (!this.#disposed) return;
    throw new SpillwayError('ENGINE_CLOSED', 'the tensor belongs to a device that was disposed');
  }
}

/** tfjs's table of the data that tensors refer to; private in its typings, there in 4.22.0. */
function engineState(): {
  readonly tensorInfo: WeakMap<object, { readonly shape: number[]; readonly dtype: string }>;
} {
  return (tf.engine() as unknown as { state: ReturnType<typeof engineState> }).state;
}

function bytesOf({ buffer, byteOffset, byteLength }: NativeArray): Uint8Array {
  return new Uint8Array(buffer, byteOffset, byteLength);
}

/** `values` in the array type that the device keeps; a copy only when they are in another. */
function typedValues(dtype: NativeDtype, values: ArrayLike<number | boolean>): NativeArray {
  const target = nativeArray(dtype, 0);
  if (values instanceof target.constructor) return values as unknown as NativeArray;
  const copy = nativeArray(dtype, values.length);
  for (let index = 0; index < values.length; index++) copy[index] = Number(values[index]);
  return copy;
}
