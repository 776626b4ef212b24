/**
 * @file A leased range of memory outside the JavaScript heap that main thread and workers share.
 *
 * The bytes are a view over a SharedArrayBuffer slab, aligned to 4096, so that O_DIRECT, worker
 * threads and devices use them in place.
 */

/** Bytes owned by whoever holds this object, until `dispose()`. */
export interface MemoryLease {
  /** Exactly the requested length; starts at a multiple of 4096 in memory and in its slab. */
  readonly bytes: Uint8Array<SharedArrayBuffer>;
  /** What the bytes are for; shown by ledgers and errors. */
  readonly label: string;
  /** Gives the bytes back. Idempotent. */
  dispose(): void;
}

/** Something that leases memory under a hard budget (host pool; host-addressable devices). */
export interface MemoryArena {
  readonly budgetBytes: number;
  readonly liveBytes: number;
  readonly peakBytes: number;
  /** @throws HOST_OUT_OF_MEMORY or DEVICE_OUT_OF_MEMORY with the numbers; nothing changes then */
  lease(byteLength: number, label: string): MemoryLease;
}
