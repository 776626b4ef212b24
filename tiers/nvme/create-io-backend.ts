/** @file Picks the I/O of the main thread: io_uring where it works, else node:fs, saying why. */
import { SpillwayError } from '../../core/errors.js';
import { native, nativeStatus } from '../native/binding.js';
import type { IoBackend } from './io-backend.js';
import { errnoName } from './io-failure.js';
import { RingBackend } from './ring-backend.js';
import { ThreadPoolBackend } from './thread-pool-backend.js';

/** A backend, and why it is not the ring (undefined when it is). */
export interface IoBackendChoice {
  readonly backend: IoBackend;
  readonly reason: string | undefined;
}

/** Why there is no ring in this process, or undefined when there is. */
export function ringUnavailableReason(): string | undefined {
  const addon = native();
  if (addon === undefined) {
    const status = nativeStatus();
    return status.kind === 'loaded' ? undefined : `no native addon: ${status.reason}`;
  }
  const errno = addon.ringProbe();
  return errno === 0 ? undefined : `the kernel refuses io_uring (${errnoName(errno)})`;
}

/** Creates the backend. `prefer` defaults to `ring`. */
export function createIoBackend({
  prefer = 'ring',
}: { readonly prefer?: 'ring' | 'thread-pool' } = {}): IoBackendChoice {
  const reason = prefer === 'ring' ? ringUnavailableReason() : 'thread-pool was asked for';
  if (reason !== undefined) return { backend: new ThreadPoolBackend(), reason };
  try {
    return { backend: new RingBackend(), reason: undefined };
  } catch (error) {
    // The probe worked and this ring did not: memory limits. The portable path still trains.
    if (!(error instanceof SpillwayError)) throw error;
    return { backend: new ThreadPoolBackend(), reason: error.message };
  }
}
