/**
 * @file The byte budgets of the three tiers, defaults applied.
 *
 * Defaults: device = a quarter of available memory (a CPU device lives in main memory), host = half
 * of it, NVMe = 90 % of the free space under `nvme_path`. Given budgets are taken as they are.
 */
import { alignDown } from '../../core/bytes.js';
import { totalFreeBytes } from './free-space.js';
import { readMemoryLimits } from './memory-limits.js';
import type { ConfigValues } from './train-config.js';

/** Bytes per tier. */
export interface Budgets {
  readonly deviceMemory: number;
  readonly hostMemory: number;
  /** 0 without an NVMe tier. */
  readonly nvmeMemory: number;
}

/** What the defaults are computed from; tests pass their own. */
export interface BudgetSources {
  /** Bytes of main memory that can be allocated. */
  availableMemory(): number;
  /** Free bytes over all paths. */
  freeSpace(paths: readonly string[]): number;
}

const machine: BudgetSources = {
  availableMemory: () => readMemoryLimits().availableBytes,
  freeSpace: totalFreeBytes,
};

/** Whole pages: a budget of odd bytes helps nobody. */
const GRAIN_BYTES = 4096;

/** Fills in the budgets that `values` leave open. */
export function resolveBudgets(
  values: Pick<ConfigValues, 'device_memory' | 'host_memory' | 'nvme_memory' | 'nvme_path'>,
  sources: BudgetSources = machine,
): Budgets {
  const share = (bytes: number, part: number) => alignDown(bytes * part, GRAIN_BYTES);
  const paths = values.nvme_path ?? [];
  return {
    deviceMemory: values.device_memory ?? share(sources.availableMemory(), 1 / 4),
    hostMemory: values.host_memory ?? share(sources.availableMemory(), 1 / 2),
    nvmeMemory:
      paths.length === 0 ? 0 : (values.nvme_memory ?? share(sources.freeSpace(paths), 0.9)),
  };
}
