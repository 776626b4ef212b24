/**
 * @file How much memory this process can still get: the machine's, and its container's limits.
 *
 * Linux: `MemAvailable` of /proc/meminfo, and the memory controller of cgroup v2 or v1 at the
 * process's group and every group above it; what a group can still give is its limit less its use,
 * where inactive page cache does not count as use (the kernel takes it back first). Elsewhere the
 * operating system's free memory.
 */
import { freemem, totalmem } from 'node:os';
import { join } from 'node:path';
import { textOfFile } from '../../core/text-of-file.js';

/** Bytes. */
export interface MemoryLimits {
  readonly totalBytes: number;
  /** What can be allocated now: the smallest of machine and container. */
  readonly availableBytes: number;
  /** The container's limit, when it is below the machine's memory. */
  readonly containerLimitBytes: number | undefined;
}

/** A limit and what is left under it. */
interface GroupLimit {
  readonly limitBytes: number;
  readonly availableBytes: number;
}

/** @param root folder that holds `proc` and `sys`; tests pass another one */
export function readMemoryLimits(root = '/'): MemoryLimits {
  const meminfo = textOfFile(join(root, 'proc/meminfo'));
  const totalBytes = kibibytes(meminfo, 'MemTotal') ?? totalmem();
  let availableBytes = kibibytes(meminfo, 'MemAvailable') ?? freemem();
  let containerLimitBytes: number | undefined;
  for (const group of groupLimits(root)) {
    if (group.limitBytes >= totalBytes) continue;
    containerLimitBytes = Math.min(containerLimitBytes ?? group.limitBytes, group.limitBytes);
    availableBytes = Math.min(availableBytes, group.availableBytes);
  }
  return { totalBytes, availableBytes, containerLimitBytes };
}

function groupLimits(root: string): GroupLimit[] {
  const lines = (textOfFile(join(root, 'proc/self/cgroup')) ?? '').split('\n');
  const limits: GroupLimit[] = [];
  for (const line of lines) {
    const [, controllers, path] = /^\d+:([^:]*):(.*)$/.exec(line) ?? [];
    if (controllers === undefined || path === undefined) continue;
    if (controllers === '') {
      const files = ['memory.max', 'memory.current', 'inactive_file'] as const;
      limits.push(...ancestors(path).flatMap((group) => limitOf(root, '', group, files)));
    } else if (controllers.split(',').includes('memory')) {
      const files = [
        'memory.limit_in_bytes',
        'memory.usage_in_bytes',
        'total_inactive_file',
      ] as const;
      limits.push(...ancestors(path).flatMap((group) => limitOf(root, 'memory', group, files)));
    }
  }
  return limits;
}

/** `/a/b` → `/a/b`, `/a`, `/`. Inside a container only the last may exist. */
function ancestors(path: string): string[] {
  const parts = path.split('/').filter((part) => part !== '' && part !== '..');
  return Array.from({ length: parts.length + 1 }, (_, drop) =>
    parts.slice(0, parts.length - drop).join('/'),
  );
}

function limitOf(
  root: string,
  mount: string,
  group: string,
  [limitFile, usageFile, cacheField]: readonly [string, string, string],
): GroupLimit[] {
  const folder = join(root, 'sys/fs/cgroup', mount, group);
  const limitBytes = Number.parseInt(textOfFile(join(folder, limitFile)) ?? '', 10);
  if (!Number.isFinite(limitBytes)) return [];
  const usage = Number.parseInt(textOfFile(join(folder, usageFile)) ?? '0', 10);
  const stat = textOfFile(join(folder, 'memory.stat')) ?? '';
  const cache = Number(new RegExp(`^${cacheField} (\\d+)$`, 'm').exec(stat)?.[1] ?? 0);
  const used = Math.max(0, usage - cache);
  return [{ limitBytes, availableBytes: Math.max(0, limitBytes - used) }];
}

function kibibytes(meminfo: string | undefined, field: string): number | undefined {
  const match = new RegExp(`^${field}:\\s+(\\d+) kB$`, 'm').exec(meminfo ?? '');
  return match === null ? undefined : Number(match[1]) * 1024;
}
