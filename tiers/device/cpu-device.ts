/**
 * @file The `cpu` device: tfjs's plain JavaScript kernels, under a byte budget.
 *
 * The ledger is exact for what tfjs stores: an allocation is charged before its array is stored,
 * and released when the last tensor over that array is gone. Not in the ledger: a kernel creates
 * its result array (and some kernels scratch arrays) before tfjs stores it, and a freed array stays
 * in the process until V8 collects it. Measured on blocks with 12 MiB of weights (24 MiB live at the
 * peak), V8's own pressure on external memory keeps the process about 75 MiB above the live bytes;
 * collections forced at every 32 to 128 MiB of freed bytes lower that by at most 17 MiB, so this
 * device forces none.
 *
 * Memory is the CPU's own: `arena` leases shared memory on the same budget, and `alias` makes a
 * tensor over it. Everything is synchronous; promises are resolved when they are returned.
 *
 * Owns its charges in tfjs's process-wide backend (cpu-backend.ts), not the backend.
 */
import * as tf from '@tensorflow/tfjs-core';
import type { Tensor } from '@tensorflow/tfjs-core';
import { assert, SpillwayError } from '../../core/errors.js';
import { withBackend } from './backend-scope.js';
import { ByteLedger } from './byte-ledger.js';
import {
  CPU_BACKEND_NAME,
  cpuBackend,
  freeAll,
  freeOrphans,
  withPayer,
  type CpuBackend,
} from './cpu-backend.js';
import { assertDownload, assertFills } from './check-transfer.js';
import { CpuUpload } from './cpu-upload.js';
import { DataAccount } from './data-account.js';
import { decodeElements } from './decode-elements.js';
import type { Device, DeviceCapabilities, DeviceRegion, TensorUpload } from './device.js';
import { ensureGradients } from './gradients.js';
import { refusePromise } from './refuse-promise.js';
import { SharedArena } from './shared-arena.js';

/** Options of a device. */
export interface DeviceOptions {
  /** Most bytes that tensors and leases may hold together. */
  readonly budgetBytes: number;
}

/** tfjs's plain JavaScript backend as a device. */
export class CpuDevice implements Device {
  readonly name = 'cpu';
  readonly capabilities: DeviceCapabilities = {
    asyncTransfers: false,
    overlap: false,
    bf16Operands: false,
    hostAddressable: true,
    // Kernels index with int32 tensors; V8's own limit on a typed array lies above.
    maxTensorElements: 2 ** 31 - 1,
  };
  readonly ledger: ByteLedger;
  readonly arena: SharedArena;
  readonly #backend: CpuBackend;
  readonly #account: DataAccount;
  #runDepth = 0;
  #uploadedBytes = 0;
  #downloadedBytes = 0;
  #disposed = false;

  private constructor(backend: CpuBackend, options: DeviceOptions) {
    this.#backend = backend;
    this.ledger = new ByteLedger(options.budgetBytes);
    this.arena = new SharedArena(this.ledger);
    this.#account = new DataAccount(this.ledger);
  }

  /**
   * A device of its own budget; several may live side by side.
   *
   * @throws INTERNAL when the installed tfjs is not the one that Spillway is written for
   */
  static create(options: DeviceOptions): CpuDevice {
    ensureGradients();
    return new CpuDevice(cpuBackend(), options);
  }

  get uploadedBytes(): number {
    return this.#uploadedBytes;
  }

  get downloadedBytes(): number {
    return this.#downloadedBytes;
  }

  /**
   * See Device. May be nested. Tensors that `body` leaves behind when it throws are the caller's
   * (use `tf.tidy`); what a failing kernel had allocated for itself is freed.
   *
   * @throws whatever `body` throws; DEVICE_OUT_OF_MEMORY from any kernel; BLOCK_INVALID when `body`
   *   returns a promise; ENGINE_CLOSED after `dispose`
   */
  run<T>(body: () => T): T {
    this.#assertOpen();
    this.#runDepth += 1;
    try {
      return withBackend(CPU_BACKEND_NAME, this.#backend, () =>
        withPayer(this.#account, () => refusePromise(body())),
      );
    } catch (error) {
      if (this.#runDepth === 1) freeOrphans(this.#account);
      throw error;
    } finally {
      this.#runDepth -= 1;
    }
  }

  beginUpload(shape: readonly number[], label: string): TensorUpload {
    this.#assertOpen();
    const context = {
      account: this.#account,
      makeTensor: (values: Float32Array) => this.#makeTensor(values, shape, 'float32'),
      countUploaded: (bytes: number) => {
        this.#uploadedBytes += bytes;
      },
    };
    return new CpuUpload(context, tf.util.sizeFromShape([...shape]), label);
  }

  reserve(byteLength: number, label: string): DeviceRegion {
    this.#assertOpen();
    if (byteLength === 0) return emptyRegion();
    const lease = this.arena.lease(byteLength, label);
    const { buffer, byteOffset: start } = lease.bytes;
    return {
      byteLength,
      write: async (byteOffset, source, type, kept) => {
        assert(kept === 'float32', 'this device keeps float32 only');
        const values = new Float32Array(buffer, start, Math.floor(byteLength / 4));
        decodeElements(values, byteOffset / 4, source, type);
        this.#uploadedBytes += source.byteLength;
      },
      view: (byteOffset, shape, kept) => {
        assert(kept === 'float32', 'this device keeps float32 only');
        const bytes = 4 * tf.util.sizeFromShape([...shape]);
        return this.alias(lease.bytes.subarray(byteOffset, byteOffset + bytes), shape);
      },
      dispose: () => lease.dispose(),
    };
  }

  own(tensor: Tensor): Tensor {
    const values = this.run(() => this.#backend.readSync(tensor.dataId)) as tf.TypedArray;
    // The arena's memory is shared with other threads; tfjs's own never is.
    if (!(values.buffer instanceof SharedArrayBuffer)) return tensor;
    const copy = this.run(() => tf.mul(tensor, 1));
    tensor.dispose();
    return copy;
  }

  async computed(): Promise<void> {
    this.#assertOpen();
  }

  async upload(
    data: Float32Array | Int32Array,
    shape: readonly number[],
    label: string,
  ): Promise<Tensor> {
    this.#assertOpen();
    assertFills(data.length, shape);
    const buffer = this.#account.allocate(data.byteLength, label);
    try {
      const isInt32 = data instanceof Int32Array;
      const copy = isInt32 ? new Int32Array(buffer) : new Float32Array(buffer);
      copy.set(data);
      const tensor = this.#makeTensor(copy, shape, isInt32 ? 'int32' : 'float32');
      this.#uploadedBytes += data.byteLength;
      return tensor;
    } finally {
      // The tensor's data hold the buffer from now on.
      this.#account.drop(buffer);
    }
  }

  alias(bytes: Uint8Array<SharedArrayBuffer>, shape: readonly number[]): Tensor {
    this.#assertOpen();
    assert(bytes.byteOffset % 4 === 0 && bytes.byteLength % 4 === 0, 'aliased bytes are float32');
    const values = new Float32Array(bytes.buffer, bytes.byteOffset, bytes.byteLength / 4);
    assertFills(values.length, shape);
    return this.#makeTensor(values, shape, 'float32');
  }

  async download(tensor: Tensor, offset: number, target: Float32Array): Promise<void> {
    this.#assertOpen();
    assertDownload(tensor, offset, target.length);
    const values = this.run(() => this.#backend.readSync(tensor.dataId)) as Float32Array;
    target.set(values.subarray(offset, offset + target.length));
    this.#downloadedBytes += target.byteLength;
  }

  async synchronize(): Promise<void> {
    this.#assertOpen();
  }

  async dispose(): Promise<void> {
    if (this.#disposed) return;
    this.#disposed = true;
    freeAll(this.#account);
    this.arena.dispose();
  }

  /** A tensor over `values` themselves, charged to this device. */
  #makeTensor(values: tf.TypedArray, shape: readonly number[], dtype: tf.DataType): Tensor {
    return this.run(() => tf.engine().makeTensor(values, [...shape], dtype, this.#backend));
  }

  #assertOpen(): void {
    if (!this.#disposed) return;
    throw new SpillwayError('ENGINE_CLOSED', 'the device was disposed; create another one');
  }
}

/** A region in which nothing has a place. */
function emptyRegion(): DeviceRegion {
  const refuse = (): never => {
    throw new SpillwayError('INTERNAL', 'the region is empty');
  };
  return {
    byteLength: 0,
    write: async () => refuse(),
    view: refuse,
    dispose: () => undefined,
  };
}
