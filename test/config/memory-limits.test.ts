// Goal: available memory is the smallest of the machine's and every enclosing container's.
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, expect, it } from 'vitest';
import { readMemoryLimits } from '../../src/config/memory-limits.js';

const roots: string[] = [];
afterEach(() => {
  for (const root of roots.splice(0)) rmSync(root, { recursive: true });
});

const MIB = 2 ** 20;

/** A root folder with 8 GiB of memory, 6 GiB of it available, and `files`. */
function machine(files: Record<string, string>): string {
  const root = mkdtempSync(join(tmpdir(), 'spillway-limits-'));
  roots.push(root);
  const meminfo = `MemTotal: ${8192 * 1024} kB\nMemFree: 5 kB\nMemAvailable: ${6144 * 1024} kB\n`;
  for (const [path, text] of Object.entries({ 'proc/meminfo': meminfo, ...files })) {
    mkdirSync(dirname(join(root, path)), { recursive: true });
    writeFileSync(join(root, path), text);
  }
  return root;
}

it('is MemAvailable without a container', () => {
  expect(readMemoryLimits(machine({ 'proc/self/cgroup': '0::/\n' }))).toEqual({
    totalBytes: 8192 * MIB,
    availableBytes: 6144 * MIB,
    containerLimitBytes: undefined,
  });
});

it('honours cgroup v2, where inactive page cache counts as available', () => {
  const limits = readMemoryLimits(
    machine({
      'proc/self/cgroup': '0::/app\n',
      'sys/fs/cgroup/app/memory.max': `${1024 * MIB}\n`,
      'sys/fs/cgroup/app/memory.current': `${600 * MIB}\n`,
      'sys/fs/cgroup/app/memory.stat': `anon 5\ninactive_file ${100 * MIB}\nactive_file 7\n`,
    }),
  );
  expect(limits.availableBytes).toBe(524 * MIB);
  expect(limits.containerLimitBytes).toBe(1024 * MIB);
});

it('honours the groups above, and "max" as no limit', () => {
  const limits = readMemoryLimits(
    machine({
      'proc/self/cgroup': '0::/pod/app\n',
      'sys/fs/cgroup/pod/app/memory.max': 'max\n',
      'sys/fs/cgroup/pod/memory.max': `${2048 * MIB}\n`,
      'sys/fs/cgroup/pod/memory.current': `${48 * MIB}\n`,
    }),
  );
  expect(limits.availableBytes).toBe(2000 * MIB);
});

it('honours cgroup v1 at the mount when the path is only known outside the container', () => {
  const limits = readMemoryLimits(
    machine({
      'proc/self/cgroup': '5:cpu:/\n4:memory:/docker/abc\n0::/\n',
      'sys/fs/cgroup/memory/memory.limit_in_bytes': `${512 * MIB}\n`,
      'sys/fs/cgroup/memory/memory.usage_in_bytes': `${200 * MIB}\n`,
      'sys/fs/cgroup/memory/memory.stat': `total_inactive_file ${88 * MIB}\n`,
    }),
  );
  expect(limits.availableBytes).toBe(400 * MIB);
});

it("ignores a limit above the machine's memory (v1 spells none as 2^63)", () => {
  const limits = readMemoryLimits(
    machine({
      'proc/self/cgroup': '4:memory:/\n',
      'sys/fs/cgroup/memory/memory.limit_in_bytes': '9223372036854771712\n',
    }),
  );
  expect(limits.containerLimitBytes).toBeUndefined();
  expect(limits.availableBytes).toBe(6144 * MIB);
});

it('never goes below zero', () => {
  const limits = readMemoryLimits(
    machine({
      'proc/self/cgroup': '0::/\n',
      'sys/fs/cgroup/memory.max': `${64 * MIB}\n`,
      'sys/fs/cgroup/memory.current': `${65 * MIB}\n`,
    }),
  );
  expect(limits.availableBytes).toBe(0);
});

it('is positive and at most the total on this machine', () => {
  const limits = readMemoryLimits();
  expect(limits.availableBytes).toBeGreaterThan(0);
  expect(limits.availableBytes).toBeLessThanOrEqual(limits.totalBytes);
});
