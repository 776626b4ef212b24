/**
 * @file One block of shared memory that starts at a 2 MiB boundary, on huge pages where offered.
 *
 * 2 MiB more than asked for are reserved and the view starts at the boundary within; pages that
 * nobody touches cost nothing. Huge pages double O_DIRECT throughput (bench/ring.ts), but the
 * kernel hands them out whole: each run of touched bytes may hold up to 2 MiB more than it needs.
 * Without the addon the address is unknown: the view starts where the engine put it, and files are
 * not opened with O_DIRECT.
 */
import { alignUp } from '../../core/bytes.js';
import { assert } from '../../core/errors.js';
import { native } from '../native/binding.js';

/** Size and alignment of a huge page on x86-64, and on arm64 with 4 KiB pages. */
export const HUGE_PAGE_BYTES = 2 ** 21;

/** Numbers of `Advice` in native/slab.cc. */
const ADVICE = { hugePages: 0, discard: 1 } as const;

/** Memory that lives as long as any view of it. */
export interface Slab {
  readonly bytes: Uint8Array<SharedArrayBuffer>;
  /** Whether the kernel took the advice; huge pages may still be scarce. */
  readonly hugePages: boolean;
}

/**
 * Reserves `byteLength` bytes, zeroed.
 *
 * @param options.hugePages default true; false for small buffers, which would cost 2 MiB each
 * @throws RangeError when the address space or the engine's limit on buffers is exhausted
 */
export function createSlab(
  byteLength: number,
  { hugePages = true }: { readonly hugePages?: boolean } = {},
): Slab {
  assert(byteLength > 0, 'a slab holds bytes', { byteLength });
  const addon = native();
  const buffer = new SharedArrayBuffer(byteLength + HUGE_PAGE_BYTES);
  if (addon === undefined) {
    return { bytes: new Uint8Array(buffer, 0, byteLength), hugePages: false };
  }
  const address = addon.slabAddress(new Uint8Array(buffer, 0, 1));
  const start = alignUp(address, HUGE_PAGE_BYTES) - address;
  const bytes = new Uint8Array(buffer, start, byteLength);
  const advised = hugePages && addon.slabAdvise(bytes, ADVICE.hugePages) === 0;
  return { bytes, hugePages: advised };
}

/**
 * Gives the pages that lie wholly within `bytes` back to the system; their content becomes zero or
 * stays. Only whole huge pages: splitting one costs more than it gives.
 */
export function discardPages(bytes: Uint8Array<SharedArrayBuffer>): void {
  const addon = native();
  if (addon === undefined) return;
  const address = addon.slabAddress(bytes);
  const from = alignUp(address, HUGE_PAGE_BYTES) - address;
  const to = bytes.byteLength - ((address + bytes.byteLength) % HUGE_PAGE_BYTES);
  // A refusal costs memory that was paid for before, no correctness.
  if (to > from) addon.slabAdvise(bytes.subarray(from, to), ADVICE.discard);
}
