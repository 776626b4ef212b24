/**
 * @file `spillway doctor`: everything that a run depends on, probed on this machine.
 */
import { packageVersion } from './package-version.js';
import type { Check } from './probes/check.js';
import { checkDevices } from './probes/device-check.js';
import { checkHugePages, checkMemlock, checkMemory } from './probes/memory-checks.js';
import { checkNvmePath } from './probes/path-check.js';
import { checkAddon, checkCpu, checkIoUring, checkNode } from './probes/runtime-checks.js';

/** The report; its JSON form has these keys on every machine. */
export interface DoctorReport {
  /** Version of Spillway. */
  readonly spillway: string;
  /** In a fixed order; `nvme_path` once per path, last. */
  readonly checks: readonly Check[];
}

/** Probes the machine; `paths` are folders of an NVMe tier. */
export function runDoctor(paths: readonly string[]): DoctorReport {
  return {
    spillway: packageVersion(),
    checks: [
      checkNode(),
      checkCpu(),
      checkAddon(),
      checkIoUring(),
      checkMemory(),
      checkMemlock(),
      checkHugePages(),
      checkDevices(),
      ...paths.map((path) => checkNvmePath(path)),
    ],
  };
}
