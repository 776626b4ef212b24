// Goal: leases are aligned, disjoint and counted exactly, and the budget is the only limit.
import { readFileSync } from 'node:fs';
import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import { SpillwayError } from '../../core/errors.js';
import { HostPool } from '../../tiers/host/host-pool.js';
import type { MemoryLease } from '../../tiers/host/host-buffer.js';
import { native } from '../../tiers/native/binding.js';

const MIB = 2 ** 20;

function outOfMemory(action: () => unknown): SpillwayError {
  try {
    action();
  } catch (error) {
    if (error instanceof SpillwayError && error.code === 'HOST_OUT_OF_MEMORY') return error;
    throw error;
  }
  throw new Error('the lease was granted');
}

describe('HostPool', () => {
  it('grants whatever the budget allows, fragmented or not, and counts live and peak exactly', () => {
    const budgetBytes = 64 * 4096;
    const command = fc.record({
      lease: fc.boolean(),
      bytes: fc.integer({ min: 1, max: 40 * 4096 }),
      pick: fc.nat(),
    });
    fc.assert(
      fc.property(fc.array(command, { maxLength: 60 }), (commands) => {
        const pool = HostPool.create({ budgetBytes });
        const leases: { lease: MemoryLease; rounded: number; mark: number }[] = [];
        let live = 0;
        let peak = 0;
        for (const [mark, { lease: wantsLease, bytes, pick }] of commands.entries()) {
          const rounded = Math.ceil(bytes / 4096) * 4096;
          if (wantsLease && live + rounded > budgetBytes) {
            expect(outOfMemory(() => pool.lease(bytes, 'x')).facts).toMatchObject({
              neededBytes: rounded,
              freeBytes: budgetBytes - live,
              budgetBytes,
              largestFreeBytes: budgetBytes - live,
            });
          } else if (wantsLease) {
            const lease = pool.lease(bytes, 'x');
            expect(lease.bytes.byteLength).toBe(bytes);
            lease.bytes.fill(mark);
            leases.push({ lease, rounded, mark });
            live += rounded;
            peak = Math.max(peak, live);
          } else if (leases.length > 0) {
            const [entry] = leases.splice(pick % leases.length, 1);
            entry!.lease.dispose();
            entry!.lease.dispose();
            live -= entry!.rounded;
          }
          expect([pool.liveBytes, pool.peakBytes]).toEqual([live, peak]);
        }
        // Overlapping leases would have overwritten one another's marks.
        for (const { lease, mark } of leases) {
          expect(lease.bytes[0]).toBe(mark & 255);
          expect(lease.bytes.at(-1)).toBe(mark & 255);
        }
      }),
      { numRuns: 100 },
    );
  });

  it('reserves another slab when the free ranges are all too short', () => {
    const pool = HostPool.create({ budgetBytes: 4 * MIB });
    const pages = Array.from({ length: 4 }, () => pool.lease(MIB, 'quarter'));
    pages[0]!.dispose();
    pages[2]!.dispose();
    const reserved = pool.reservedBytes;
    const lease = pool.lease(2 * MIB, 'half');
    expect(pool.reservedBytes).toBeGreaterThan(reserved);
    expect(pool.liveBytes).toBe(4 * MIB);
    lease.dispose();
    expect(pool.reservedBytes).toBe(reserved);
  });

  it.skipIf(native() === undefined)('starts every lease at a page and the slab at 2 MiB', () => {
    const pool = HostPool.create({ budgetBytes: 8 * MIB });
    const first = pool.lease(1, 'first');
    const second = pool.lease(5000, 'second');
    expect(native()!.slabAddress(first.bytes) % (2 * MIB)).toBe(0);
    expect(native()!.slabAddress(second.bytes) % 4096).toBe(0);
    expect(second.bytes.byteOffset).toBe(first.bytes.byteOffset + 4096);
  });

  it('costs address space only: a budget beyond the machine is no memory until touched', () => {
    const before = process.memoryUsage.rss();
    const pool = HostPool.create({ budgetBytes: 2 ** 40 });
    const lease = pool.lease(3 * 2 ** 30, 'large');
    lease.bytes[2 ** 31] = 1;
    expect(process.memoryUsage.rss() - before).toBeLessThan(64 * MIB);
    pool.dispose();
  });

  it.skipIf(native() === undefined || process.platform !== 'linux')(
    'gives the pages of a large freed lease back to the system',
    () => {
      const pool = HostPool.create({ budgetBytes: 128 * MIB });
      const kept = pool.lease(4096, 'kept');
      const lease = pool.lease(96 * MIB, 'large');
      kept.bytes.fill(7);
      lease.bytes.fill(1);
      const touched = residentBytes();
      lease.dispose();
      expect(touched - residentBytes()).toBeGreaterThan(80 * MIB);
      expect(kept.bytes.every((value) => value === 7)).toBe(true);
    },
  );

  it('refuses use after dispose and leaves live leases readable', () => {
    const pool = HostPool.create({ budgetBytes: MIB });
    const lease = pool.lease(10, 'kept');
    lease.bytes.fill(3);
    pool.dispose();
    pool.dispose();
    expect(lease.bytes.every((value) => value === 3)).toBe(true);
    expect(() => pool.lease(10, 'late')).toThrow('disposed');
    lease.dispose();
    expect(pool.liveBytes).toBe(0);
  });
});

function residentBytes(): number {
  const match = /^VmRSS:\s+(\d+) kB/m.exec(readFileSync('/proc/self/status', 'utf8'));
  return Number(match?.[1]) * 1024;
}
