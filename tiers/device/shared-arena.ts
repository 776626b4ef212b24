/**
 * @file Memory of a host-addressable device that the CPU and worker threads address too.
 *
 * Ranges come from a host pool of the device's own (huge-page slabs, reserved when first needed),
 * and are charged to the device's ledger as the pool counts them: in whole pages of 4096 bytes.
 *
 * Owns the pool.
 */
import { alignUp } from '../../core/bytes.js';
import { hasCode } from '../../core/errors.js';
import { IO_ALIGNMENT } from '../../core/types.js';
import type { MemoryArena, MemoryLease } from '../host/host-buffer.js';
import { HostPool } from '../host/host-pool.js';
import type { ByteLedger } from './byte-ledger.js';
import { processOutOfMemory } from './data-account.js';

/** Leases shared memory on a device's budget. */
export class SharedArena implements MemoryArena {
  readonly #ledger: ByteLedger;
  readonly #pool: HostPool;
  readonly #beforeRelease: (() => void) | undefined;

  /** @param beforeRelease called before a lease's bytes may become another's */
  constructor(ledger: ByteLedger, beforeRelease?: () => void) {
    this.#ledger = ledger;
    this.#beforeRelease = beforeRelease;
    this.#pool = HostPool.create({ budgetBytes: ledger.budgetBytes, label: 'device' });
  }

  /** The device's budget, of which tensors take their part. */
  get budgetBytes(): number {
    return this.#ledger.budgetBytes;
  }

  /** Bytes of leases alive. */
  get liveBytes(): number {
    return this.#pool.liveBytes;
  }

  get peakBytes(): number {
    return this.#pool.peakBytes;
  }

  /** Memory of undefined content. @throws DEVICE_OUT_OF_MEMORY; nothing changes then */
  lease(byteLength: number, label: string): MemoryLease {
    const chargedBytes = alignUp(byteLength, IO_ALIGNMENT);
    this.#ledger.charge(chargedBytes, label);
    let lease: MemoryLease;
    try {
      lease = this.#pool.lease(byteLength, label);
    } catch (error) {
      this.#ledger.release(chargedBytes);
      throw hasCode(error, 'HOST_OUT_OF_MEMORY')
        ? processOutOfMemory(chargedBytes, label, error)
        : error;
    }
    let live = true;
    return {
      bytes: lease.bytes,
      label,
      dispose: () => {
        if (!live) return;
        live = false;
        this.#beforeRelease?.();
        lease.dispose();
        this.#ledger.release(chargedBytes);
      },
    };
  }

  /** Lets the memory go; live leases keep theirs. Idempotent. */
  dispose(): void {
    this.#pool.dispose();
  }
}
