/**
 * @file What every kind of engine is built on: budgets, NVMe files.
 */
import { randomBytes } from 'node:crypto';
import { parseByteSize } from '../../core/bytes.js';
import { silentLogger, warnOnce } from '../../core/logger.js';
import type { Tier } from '../../core/types.js';
import { createLayout, type LayoutRequest } from '../../tiers/nvme/layout.js';
import type { NvmeVolume } from '../../tiers/nvme/volume.js';
import { resolveBudgets } from '../config/resolve-budgets.js';
import type { ResourceOptions } from './engine-options.js';

/** Defaults of every kind of engine, which the configuration shares (docs/CONFIG.md). */
export const DEFAULTS = { subGroupSize: 16_777_216, seed: 42 };

/** Budgets of all tiers in bytes, defaults applied. @throws BYTE_SIZE_INVALID */
export function budgetsOf(options: ResourceOptions): Record<Tier, number> {
  const parse = (value: number | string | undefined): number | undefined =>
    value === undefined ? undefined : parseByteSize(value);
  const resolved = resolveBudgets({
    device_memory: parse(options.deviceMemory),
    host_memory: parse(options.hostMemory),
    nvme_memory: parse(options.nvmeMemory),
    nvme_path: pathsOf(options),
  });
  return {
    device: resolved.deviceMemory,
    host: resolved.hostMemory,
    nvme: resolved.nvmeMemory,
  };
}

/** The folders of the NVMe tier. */
export function pathsOf(options: ResourceOptions): string[] {
  const { nvmePath } = options;
  if (nvmePath === undefined) return [];
  return typeof nvmePath === 'string' ? [nvmePath] : [...nvmePath];
}

/**
 * The files of `request`, or undefined when it asks for none.
 *
 * @throws NVME_FULL, STORE_LOCKED, PATH_UNWRITABLE
 */
export async function createVolume(
  options: ResourceOptions,
  request: LayoutRequest,
  budgetBytes: number,
): Promise<NvmeVolume | undefined> {
  if (request.states.length + request.scratch.length === 0) return undefined;
  // What only plans has no need of them.
  const { NvmeVolume } = await import('../../tiers/nvme/volume.js');
  let backend = options.io?.backend;
  if (backend === undefined) {
    const { createIoBackend } = await import('../../tiers/nvme/create-io-backend.js');
    const choice = createIoBackend();
    backend = choice.backend;
    if (choice.reason !== undefined) {
      warnOnce(
        options.logger ?? silentLogger,
        'io-backend',
        `NVMe files go through the thread pool instead of io_uring (${choice.reason}); spillway doctor says what that costs`,
      );
    }
  }
  return NvmeVolume.create({
    paths: pathsOf(options),
    runId: options.runId ?? `run-${process.pid}-${randomBytes(4).toString('hex')}`,
    backend,
    budgetBytes,
    layout: createLayout(request),
  });
}
