/**
 * @file Counts a device's live and peak bytes under a hard budget.
 *
 * Whoever allocates charges first and allocates then, so that a refusal leaves nothing behind.
 */
import { assert, SpillwayError } from '../../core/errors.js';
import type { DeviceLedger } from './device.js';

/** The ledger of one device. Invariant: live <= peak, and live <= budget outside `measure`. */
export class ByteLedger implements DeviceLedger {
  readonly budgetBytes: number;
  #liveBytes = 0;
  #peakBytes = 0;
  #highBytes = 0;
  #liveCount = 0;
  #measuring = false;
  readonly #largestRange: (() => number) | undefined;

  /** @param largestRange longest free range of the device's address space, where it has one */
  constructor(budgetBytes: number, largestRange?: () => number) {
    this.budgetBytes = budgetBytes;
    this.#largestRange = largestRange;
  }

  get liveBytes(): number {
    return this.#liveBytes;
  }

  get peakBytes(): number {
    return this.#peakBytes;
  }

  get liveCount(): number {
    return this.#liveCount;
  }

  /**
   * Takes `bytes` for one allocation.
   *
   * @throws DEVICE_OUT_OF_MEMORY with neededBytes, freeBytes and budgetBytes; nothing changes then
   */
  charge(bytes: number, label: string): void {
    this.check(bytes, label);
    this.#liveBytes += bytes;
    this.#liveCount += 1;
    this.#peakBytes = Math.max(this.#peakBytes, this.#liveBytes);
    this.#highBytes = Math.max(this.#highBytes, this.#liveBytes);
  }

  /** Throws what `charge` would throw. */
  check(bytes: number, label: string): void {
    if (bytes <= this.budgetBytes - this.#liveBytes || this.#measuring) return;
    throw new SpillwayError(
      'DEVICE_OUT_OF_MEMORY',
      `device memory is full at ${label}; raise device_memory or lower the batch or max_length`,
      { neededBytes: bytes, ...this.facts() },
    );
  }

  /** The numbers of a refusal. */
  facts(): Record<string, number> {
    const freeBytes = Math.max(0, this.budgetBytes - this.#liveBytes);
    const largest = this.#largestRange?.();
    return {
      freeBytes,
      ...(largest === undefined ? {} : { largestFreeBytes: Math.min(freeBytes, largest) }),
      budgetBytes: this.budgetBytes,
    };
  }

  /** Gives back what one `charge` took. */
  release(bytes: number): void {
    this.#liveBytes -= bytes;
    this.#liveCount -= 1;
    assert(this.#liveBytes >= 0 && this.#liveCount >= 0, 'no more is released than was charged');
  }

  resetPeak(): number {
    const peakBytes = this.#peakBytes;
    this.#peakBytes = this.#liveBytes;
    return peakBytes;
  }

  takeHighBytes(): number {
    const highBytes = this.#highBytes;
    this.#highBytes = this.#liveBytes;
    return highBytes;
  }

  /** See DeviceLedger. What `body` reaches enters no peak; what it leaves behind does. */
  measure(body: () => void): number {
    assert(!this.#measuring, 'measurements do not nest');
    const peakBefore = this.resetPeak();
    const highBefore = this.#highBytes;
    const liveBefore = this.#liveBytes;
    this.#measuring = true;
    try {
      body();
      return this.#peakBytes - liveBefore;
    } finally {
      this.#measuring = false;
      this.#peakBytes = Math.max(peakBefore, this.#liveBytes);
      this.#highBytes = Math.max(highBefore, this.#liveBytes);
    }
  }
}
