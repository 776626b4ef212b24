/**
 * @file Main memory: size, container limits, locked memory, huge pages.
 */
import { formatBytes } from '../../../core/bytes.js';
import { textOfFile } from '../../../core/text-of-file.js';
import { readMemoryLimits } from '../../config/memory-limits.js';
import { resolveBudgets } from '../../config/resolve-budgets.js';
import type { Check } from './check.js';

export function checkMemory(): Check {
  const { totalBytes, availableBytes, containerLimitBytes } = readMemoryLimits();
  const budgets = resolveBudgets({
    device_memory: undefined,
    host_memory: undefined,
    nvme_memory: undefined,
    nvme_path: undefined,
  });
  const limit =
    containerLimitBytes === undefined
      ? 'no container limit'
      : `container limit ${formatBytes(containerLimitBytes)}`;
  const defaults = `defaults: device_memory ${formatBytes(budgets.deviceMemory)}, host_memory ${formatBytes(budgets.hostMemory)}`;
  return {
    name: 'memory',
    ok: true,
    summary: `${formatBytes(availableBytes)} of ${formatBytes(totalBytes)} available, ${limit}; ${defaults}`,
    cost: null,
    facts: {
      total_bytes: totalBytes,
      available_bytes: availableBytes,
      container_limit_bytes: containerLimitBytes ?? null,
      default_device_memory: budgets.deviceMemory,
      default_host_memory: budgets.hostMemory,
    },
  };
}

/** Below this neither a slab nor a ring's buffers can be locked. */
const USEFUL_MEMLOCK_BYTES = 64 * 2 ** 20;

/** @param limits text of /proc/self/limits */
export function checkMemlock(limits = textOfFile('/proc/self/limits')): Check {
  const soft = /^Max locked memory\s+(\d+|unlimited)/m.exec(limits ?? '')?.[1];
  const bytes = soft === undefined || soft === 'unlimited' ? null : Number(soft);
  const ok = soft === 'unlimited' || (bytes !== null && bytes >= USEFUL_MEMLOCK_BYTES);
  const shown = bytes === null ? (soft ?? 'unknown') : formatBytes(bytes);
  return {
    name: 'memlock',
    ok,
    summary: `RLIMIT_MEMLOCK ${shown}`,
    cost: ok
      ? null
      : 'memory is neither locked nor registered with the ring: a little CPU per request; raise "ulimit -l"',
    facts: { limit_bytes: bytes, unlimited: soft === 'unlimited' },
  };
}

/** @param enabled text of /sys/kernel/mm/transparent_hugepage/enabled */
export function checkHugePages(
  enabled = textOfFile('/sys/kernel/mm/transparent_hugepage/enabled'),
): Check {
  const mode = /\[(\w+)\]/.exec(enabled ?? '')?.[1] ?? null;
  const ok = mode === 'always' || mode === 'madvise';
  return {
    name: 'huge_pages',
    ok,
    summary: `transparent huge pages: ${mode ?? 'not offered'}`,
    cost: ok
      ? null
      : 'about half of the O_DIRECT throughput; write madvise to /sys/kernel/mm/transparent_hugepage/enabled',
    facts: { mode },
  };
}
