/**
 * @file The `native` device: kernels in C++ that run behind, as on a GPU, under a byte budget.
 *
 * Compute, uploads and downloads are three in-order queues with threads of their own; what returns
 * here has been submitted, not done. The ledger counts at submission and is exact (tensor-arena.ts);
 * not in it: scratch memory that kernels pack operands into, a few MiB, and values on their way
 * from JavaScript. Memory is the CPU's own: `arena` leases shared memory on the same budget, and
 * `alias` makes a tensor over it.
 *
 * Owns one backend, and through it the queues and all memory.
 */
import * as tf from '@tensorflow/tfjs-core';
import type { Tensor } from '@tensorflow/tfjs-core';
import { alignUp } from '../../../core/bytes.js';
import { assert, SpillwayError } from '../../../core/errors.js';
import { IO_ALIGNMENT, elementBytes } from '../../../core/types.js';
import { native } from '../../native/binding.js';
import { withBackend } from '../backend-scope.js';
import type { ByteLedger } from '../byte-ledger.js';
import { assertDownload, assertFills } from '../check-transfer.js';
import type { DeviceOptions } from '../cpu-device.js';
import type {
  Device,
  DeviceCapabilities,
  DeviceRegion,
  TensorUpload,
  UploadOptions,
} from '../device.js';
import { ensureGradients } from '../gradients.js';
import { refusePromise } from '../refuse-promise.js';
import { SharedArena } from '../shared-arena.js';
import { COMPUTE, DOWNLOAD, SOURCE, UPLOAD } from './command-queues.js';
import { registerFallbacks } from './cpu-fallback.js';
import { registerNativeKernels } from './kernels/index.js';
import { NativeBackend } from './native-backend.js';
import { NativeUpload, alignedSource, sourceKind } from './native-upload.js';
import { NATIVE_BACKEND_NAME } from './register-kernel.js';
import type { TensorStorage } from './tensor-arena.js';

/** Options of a native device. */
export interface NativeDeviceOptions extends DeviceOptions {
  /** Threads that kernels run on; default `SPILLWAY_THREADS`, else the cores of this process. */
  readonly threads?: number;
}

export class NativeDevice implements Device {
  readonly name: 'native' | 'meta';
  readonly capabilities: DeviceCapabilities = {
    asyncTransfers: true,
    overlap: true,
    bf16Operands: true,
    hostAddressable: true,
    // Indices into rows are int32 tensors.
    maxTensorElements: 2 ** 31 - 1,
  };
  readonly ledger: ByteLedger;
  readonly arena: SharedArena;
  readonly #backend: NativeBackend;
  #runDepth = 0;
  #uploadedBytes = 0;
  #downloadedBytes = 0;
  #disposed: Promise<void> | undefined;

  private constructor(options: NativeDeviceOptions, name: 'native' | 'meta') {
    this.name = name;
    this.#backend = new NativeBackend({ ...options, meta: name === 'meta' });
    this.ledger = this.#backend.arena.ledger;
    // A kernel that was submitted may still read an alias of the bytes.
    this.arena = new SharedArena(this.ledger, () => this.#settleAliases());
  }

  /**
   * A device of its own budget, memory and threads; several may live side by side.
   *
   * @throws DEVICE_UNAVAILABLE without the addon; CONFIG_INVALID for a wrong SPILLWAY_THREADS;
   *   DEVICE_OUT_OF_MEMORY when the system has no such address space
   */
  static create(options: NativeDeviceOptions): NativeDevice {
    ensureGradients();
    registerNativeKernels();
    registerFallbacks();
    return new NativeDevice(options, 'native');
  }

  /**
   * The `meta` device: shapes and allocations of the native device, exactly, and no values. What
   * reads values throws BLOCK_INVALID. Needs no memory, and the addon for its kernels' names.
   */
  static createMeta(options: DeviceOptions): NativeDevice {
    ensureGradients();
    registerNativeKernels();
    registerFallbacks();
    return new NativeDevice(options, 'meta');
  }

  /** The device's tfjs backend. */
  get backend(): NativeBackend {
    return this.#backend;
  }

  get fallbackCounts(): ReadonlyMap<string, number> {
    return this.#backend.fallbackCounts;
  }

  get uploadedBytes(): number {
    return this.#uploadedBytes;
  }

  get downloadedBytes(): number {
    return this.#downloadedBytes;
  }

  /**
   * See Device. May be nested. Kernels may not have run when it returns. Tensors that `body` leaves
   * behind when it throws are the caller's (use `tf.tidy`); what a failing kernel had allocated for
   * itself is freed.
   *
   * @throws whatever `body` throws; DEVICE_OUT_OF_MEMORY from any kernel; BLOCK_INVALID when `body`
   *   returns a promise; ENGINE_CLOSED after `dispose`
   */
  run<T>(body: () => T): T {
    this.#assertOpen();
    this.#runDepth += 1;
    try {
      return withBackend(NATIVE_BACKEND_NAME, this.#backend, () => refusePromise(body()));
    } catch (error) {
      if (this.#runDepth === 1) this.#backend.freeOrphans();
      throw error;
    } finally {
      this.#runDepth -= 1;
    }
  }

  beginUpload(
    shape: readonly number[],
    label: string,
    { keepBfloat16 = false }: UploadOptions = {},
  ): TensorUpload {
    this.#assertOpen();
    const kept = keepBfloat16 ? ('bfloat16' as const) : ('float32' as const);
    const context = {
      arena: this.#backend.arena,
      kept,
      makeTensor: (storage: TensorStorage) => this.#makeTensor(storage, shape, 'float32', kept),
      countUploaded: (bytes: number) => {
        this.#uploadedBytes += bytes;
      },
    };
    return new NativeUpload(context, tf.util.sizeFromShape([...shape]), label);
  }

  reserve(byteLength: number, label: string): DeviceRegion {
    this.#assertOpen();
    // The meta device has addresses and charges, but no bytes; nor has an empty region.
    const isVirtual = this.name === 'meta' || byteLength === 0;
    const lease = isVirtual ? this.#charge(byteLength, label) : undefined;
    const memory = isVirtual ? undefined : this.arena.lease(byteLength, label);
    const { arena, queues } = this.#backend;
    const address = memory === undefined ? queues.baseAddress : native()!.slabAddress(memory.bytes);
    return {
      byteLength,
      write: (byteOffset, source, type, kept) => {
        const kind = sourceKind(type, kept);
        const bytesPer = kept === 'float32' ? 4 : 2;
        const writtenBytes = (source.byteLength / elementBytes(type)) * bytesPer;
        assert(byteOffset >= 0 && byteOffset + writtenBytes <= byteLength, 'the region holds it');
        this.#uploadedBytes += source.byteLength;
        if (source.byteLength === 0) return Promise.resolve();
        return queues.upload(address + byteOffset, alignedSource(source, kind), kind);
      },
      view: (byteOffset, shape, kept) => {
        const bytes = tf.util.sizeFromShape([...shape]) * (kept === 'float32' ? 4 : 2);
        assert(byteOffset >= 0 && byteOffset + bytes <= byteLength, 'a view lies in its region');
        const storage = arena.borrow(address + byteOffset);
        return this.#makeTensor(storage, shape, 'float32', kept);
      },
      dispose: () => (lease ?? memory)?.dispose(),
    };
  }

  own(tensor: Tensor): Tensor {
    let owned = tensor;
    if (this.#backend.isBorrowed(tensor.dataId)) {
      owned = this.run(() => tf.mul(tensor, 1));
      tensor.dispose();
    }
    // Else its download would wait for whatever is launched in the meantime.
    this.#backend.complete(owned.dataId);
    return owned;
  }

  computed(): Promise<void> {
    const { queues } = this.#backend;
    return queues.done(COMPUTE, queues.submitted(COMPUTE));
  }

  async upload(
    data: Float32Array | Int32Array,
    shape: readonly number[],
    label: string,
  ): Promise<Tensor> {
    this.#assertOpen();
    assertFills(data.length, shape);
    const { arena, queues } = this.#backend;
    const storage = arena.allocate(data.byteLength, UPLOAD, label);
    const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
    const done = queues.upload(storage.address, bytes, SOURCE.bytes);
    storage.uploadSequence = queues.submitted(UPLOAD);
    this.#uploadedBytes += data.byteLength;
    await done;
    return this.#makeTensor(storage, shape, data instanceof Int32Array ? 'int32' : 'float32');
  }

  alias(bytes: Uint8Array<SharedArrayBuffer>, shape: readonly number[]): Tensor {
    this.#assertOpen();
    assert(bytes.byteOffset % 4 === 0 && bytes.byteLength % 4 === 0, 'aliased bytes are float32');
    assertFills(bytes.byteLength / 4, shape);
    const address = native()!.slabAddress(bytes);
    return this.#makeTensor(this.#backend.arena.borrow(address), shape, 'float32');
  }

  async download(tensor: Tensor, offset: number, target: Float32Array): Promise<void> {
    this.#assertOpen();
    assertDownload(tensor, offset, target.length);
    this.#downloadedBytes += target.byteLength;
    await this.#backend.download(tensor.dataId, offset, target);
  }

  async synchronize(): Promise<void> {
    this.#assertOpen();
    await this.#backend.queues.drain();
  }

  /** Everything submitted runs to its end first; its promises resolve. */
  dispose(): Promise<void> {
    this.#disposed ??= this.#backend.close().then(() => {
      this.arena.dispose();
    });
    return this.#disposed;
  }

  /** Bytes of a region that is never touched, charged as the arena charges a lease. */
  #charge(byteLength: number, label: string): { dispose(): void } {
    const chargedBytes = alignUp(byteLength, IO_ALIGNMENT);
    this.ledger.charge(chargedBytes, label);
    let live = true;
    return {
      dispose: () => {
        if (live) this.ledger.release(chargedBytes);
        live = false;
      },
    };
  }

  #settleAliases(): void {
    const { queues } = this.#backend;
    if (queues.isClosed) return;
    queues.block(COMPUTE);
    queues.block(DOWNLOAD);
  }

  /** A tensor that owns `storage`, where its elements are kept as `kept` says. */
  #makeTensor(
    storage: TensorStorage,
    shape: readonly number[],
    dtype: 'float32' | 'int32',
    kept: 'float32' | 'int32' | 'bfloat16' = dtype,
  ): Tensor {
    const length = tf.util.sizeFromShape([...shape]);
    const dataId = this.#backend.adopt(storage, length, dtype, kept);
    const info = { dataId, shape: [...shape], dtype };
    return this.run(() => tf.engine().makeTensorFromTensorInfo(info, this.#backend));
  }

  #assertOpen(): void {
    if (this.#disposed === undefined) return;
    throw new SpillwayError('ENGINE_CLOSED', 'the device was disposed; create another one');
  }
}
