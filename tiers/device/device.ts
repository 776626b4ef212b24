/**
 * @file The one interface through which the engine talks to a compute device.
 *
 * A device owns a tfjs backend and a memory arena of `budgetBytes`. Spillway sets the tfjs backend
 * only around its own synchronous calls (`run`) and restores it after. Every tensor that a device
 * hands out is owned by the caller, who disposes it; the ledger counts live and peak bytes of all
 * tensors and leases, exactly, and an allocation beyond the budget throws DEVICE_OUT_OF_MEMORY
 * with the numbers, leaving everything allocated before intact.
 */
import type { Tensor } from '@tensorflow/tfjs-core';
import type { ElementType } from '../../core/types.js';
import type { MemoryArena } from '../host/host-buffer.js';

/** What a device can do; plans depend on it, results never do. */
export interface DeviceCapabilities {
  /** Uploads and downloads return before the bytes have moved. */
  readonly asyncTransfers: boolean;
  /** Transfers overlap compute. */
  readonly overlap: boolean;
  /** Products read bfloat16 operands without a float32 copy. */
  readonly bf16Operands: boolean;
  /** Device memory can be read and written by the CPU, so that states may be homed there. */
  readonly hostAddressable: boolean;
  /** Most elements of one tensor. */
  readonly maxTensorElements: number;
}

/** Live and peak bytes of the device. */
export interface DeviceLedger {
  readonly budgetBytes: number;
  readonly liveBytes: number;
  readonly peakBytes: number;
  /** Tensors and leases alive. */
  readonly liveCount: number;
  /** Sets the peak to the live bytes; returns the peak until now. */
  resetPeak(): number;
  /** The most live bytes since the last call, at least those of now; for one watcher of the course. */
  takeHighBytes(): number;
  /** Runs `body` without the budget and returns the bytes that its peak lies above the live bytes
   * at the start. Only the workspace probe uses it. */
  measure(body: () => void): number;
}

/** A tensor under construction: filled piece by piece, because one parameter may span shards. */
export interface TensorUpload {
  /**
   * Copies `source`'s elements (of `type`; 16-bit floats are widened exactly) to elements
   * `offset …` of the tensor. `source` may be reused once the returned promise resolves.
   */
  write(offset: number, source: Uint8Array, type: ElementType): Promise<void>;
  /** The float32 tensor; every element has been written. The caller disposes it. */
  finish(): Tensor;
  /** Frees the memory of an upload that will not be finished. Idempotent. */
  abort(): void;
}

/** How a tensor is uploaded. */
export interface UploadOptions {
  /**
   * Every piece is bfloat16, and a device with `bf16Operands` keeps it so: half the bytes. To all
   * kernels it is a float32 tensor; those that do not read bfloat16 make a float32 copy, charged
   * until the tensor is disposed. Other devices widen it as always.
   */
  readonly keepBfloat16?: boolean;
}

/** How the elements of a float32 tensor are kept; see `UploadOptions.keepBfloat16`. */
export type KeptType = 'float32' | 'bfloat16';

/**
 * Device memory that is reserved once and filled again and again: where prefetched bytes arrive.
 *
 * The caller orders its uses: bytes are written when no kernel that reads them is left, and read
 * when the writes have resolved. Charged to the ledger until disposed.
 */
export interface DeviceRegion {
  readonly byteLength: number;
  /**
   * Copies `source`'s elements (of `type`) to the region, decoded to `kept`. `source` may be reused
   * once the promise resolves.
   *
   * @param byteOffset a multiple of 64 plus whole elements of a tensor that starts there
   */
  write(byteOffset: number, source: Uint8Array, type: ElementType, kept: KeptType): Promise<void>;
  /** A tensor over bytes of the region, without charge; the caller disposes it. Bfloat16 only where
   * `bf16Operands` holds. @param byteOffset a multiple of 64 */
  view(byteOffset: number, shape: readonly number[], kept: KeptType): Tensor;
  /** Gives the memory back; no view is in use. Idempotent. */
  dispose(): void;
}

export interface Device {
  readonly name: string;
  readonly capabilities: DeviceCapabilities;
  readonly ledger: DeviceLedger;
  /** Device memory that the CPU addresses (for states homed on the device), or undefined. It is
   * charged to the same budget. */
  readonly arena: MemoryArena | undefined;
  /** Calls of kernels that ran in JavaScript because the device has none, by name; absent on devices
   * without such a fallback. */
  readonly fallbackCounts?: ReadonlyMap<string, number>;
  /** Bytes copied from and to host memory by `beginUpload`, `upload` and `download`. */
  readonly uploadedBytes: number;
  readonly downloadedBytes: number;
  /** Runs synchronous tfjs code on this device and restores the previous backend. */
  run<T>(body: () => T): T;
  /** Allocates a float32 tensor of `shape` to be filled by pieces.
   * @throws DEVICE_OUT_OF_MEMORY */
  beginUpload(shape: readonly number[], label: string, options?: UploadOptions): TensorUpload;
  /** Reserves memory for the life of the region. @throws DEVICE_OUT_OF_MEMORY */
  reserve(byteLength: number, label: string): DeviceRegion;
  /**
   * `tensor`, or a copy of it where its memory is not its own: a view of a region or of a lease, or
   * a reshaped one. Consumes it then. Nothing may write to it any more.
   */
  own(tensor: Tensor): Tensor;
  /** Resolves once every kernel that was launched until now has run. */
  computed(): Promise<void>;
  /** Copies a whole float32 or int32 array into a new tensor. */
  upload(data: Float32Array | Int32Array, shape: readonly number[], label: string): Promise<Tensor>;
  /**
   * A tensor over float32 bytes of this device's own arena, without a copy and without charge
   * (they are charged to the lease). Only on host-addressable devices. Reads what the bytes hold
   * when a kernel runs; the lease outlives the tensor.
   */
  alias(bytes: Uint8Array<SharedArrayBuffer>, shape: readonly number[]): Tensor;
  /** Copies elements `offset … offset + target.length` of a float32 tensor into `target`. */
  download(tensor: Tensor, offset: number, target: Float32Array): Promise<void>;
  /** All submitted work is done. */
  synchronize(): Promise<void>;
  /** Frees the device. Live tensors become invalid. Idempotent. */
  dispose(): Promise<void>;
}
