/**
 * @file Memory of a host-addressable device that the CPU and worker threads address too.
 *
 * One SharedArrayBuffer per lease, charged to the device's ledger in whole pages of 4096 bytes. Its
 * bytes start on a page boundary, for O_DIRECT; that needs the native addon to tell the address
 * (without the addon there is no O_DIRECT). Up to one page per lease is spent on that and not
 * charged. A disposed lease's memory returns to the system when V8 collects the buffer.
 */
import { alignUp } from '../../core/bytes.js';
import { IO_ALIGNMENT } from '../../core/types.js';
import type { MemoryArena, MemoryLease } from '../host/host-buffer.js';
import { native } from '../native/binding.js';
import type { ByteLedger } from './byte-ledger.js';
import { processOutOfMemory } from './data-account.js';

/** Leases shared memory on a device's budget. */
export class SharedArena implements MemoryArena {
  readonly #ledger: ByteLedger;
  #liveBytes = 0;
  #peakBytes = 0;

  constructor(ledger: ByteLedger) {
    this.#ledger = ledger;
  }

  /** The device's budget, of which tensors take their part. */
  get budgetBytes(): number {
    return this.#ledger.budgetBytes;
  }

  /** Bytes of leases alive. */
  get liveBytes(): number {
    return this.#liveBytes;
  }

  get peakBytes(): number {
    return this.#peakBytes;
  }

  /** Zeroed memory. @throws DEVICE_OUT_OF_MEMORY; nothing changes then */
  lease(byteLength: number, label: string): MemoryLease {
    const chargedBytes = alignUp(byteLength, IO_ALIGNMENT);
    this.#ledger.charge(chargedBytes, label);
    let pages: Uint8Array<SharedArrayBuffer>;
    try {
      pages = allocatePages(chargedBytes);
    } catch (error) {
      this.#ledger.release(chargedBytes);
      throw processOutOfMemory(chargedBytes, label, error);
    }
    this.#liveBytes += chargedBytes;
    this.#peakBytes = Math.max(this.#peakBytes, this.#liveBytes);
    let live = true;
    return {
      bytes: pages.subarray(0, byteLength),
      label,
      dispose: () => {
        if (!live) return;
        live = false;
        this.#liveBytes -= chargedBytes;
        this.#ledger.release(chargedBytes);
      },
    };
  }
}

function allocatePages(byteLength: number): Uint8Array<SharedArrayBuffer> {
  const bytes = new Uint8Array(new SharedArrayBuffer(byteLength + IO_ALIGNMENT));
  const address = native()?.slabAddress(bytes) ?? 0;
  const start = alignUp(address, IO_ALIGNMENT) - address;
  return bytes.subarray(start, start + byteLength);
}
