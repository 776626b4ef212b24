/**
 * @file Registers every kernel family, once per process; one line each.
 */
import { registerFill } from './fill.js';
import { registerSharing } from './sharing.js';

let done = false;

/** Makes all native kernels known to tfjs. Idempotent. */
export function registerNativeKernels(): void {
  if (done) return;
  done = true;
  registerFill();
  registerSharing();
}
