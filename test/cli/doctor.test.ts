// Goal: the doctor's probes tell the truth, and its JSON has the same keys with and without the addon.
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import type { DoctorReport } from '../../src/cli/doctor.js';
import { runDoctor } from '../../src/cli/doctor.js';
import { renderDoctorTable } from '../../src/cli/doctor-table.js';
import { checkHugePages, checkMemlock } from '../../src/cli/probes/memory-checks.js';
import { checkNvmePath } from '../../src/cli/probes/path-check.js';
import { checkNode } from '../../src/cli/probes/runtime-checks.js';
import { native } from '../../tiers/native/binding.js';
import { spawnCli } from './spawn-cli.js';

const folder = mkdtempSync(join(tmpdir(), 'spillway-doctor-'));
afterAll(() => {
  rmSync(folder, { recursive: true });
});

/** Names and fact keys of every check. */
function keysOf(report: DoctorReport): string[] {
  return report.checks.map((check) => `${check.name}: ${Object.keys(check.facts).join(' ')}`);
}

it('reports every subject, and a cost exactly where something is missing', () => {
  const report = runDoctor([folder]);
  expect(keysOf(report)).toEqual([
    'node: version required platform arch kernel',
    'cpu: model cores isa isa_available',
    'addon: status path reason',
    'io_uring: usable reason',
    'memory: total_bytes available_bytes container_limit_bytes default_device_memory default_host_memory',
    'memlock: limit_bytes unlimited',
    'huge_pages: mode',
    'devices: available unavailable',
    'nvme_path: path exists writable direct alignment_bytes free_bytes reason',
  ]);
  for (const check of report.checks) expect(check.cost === null).toBe(check.ok);
  const table = renderDoctorTable(report);
  for (const check of report.checks) expect(table).toContain(check.summary);
});

it('has the same keys without the addon, and says what that costs', async () => {
  const args = ['doctor', '--json', '--nvme_path', folder];
  const result = await spawnCli(args, { SPILLWAY_NATIVE: 'off' });
  expect(result.status).toBe(0);
  const report = JSON.parse(result.stdout) as DoctorReport;
  expect(keysOf(report)).toEqual(keysOf(runDoctor([folder])));
  const costs = Object.fromEntries(report.checks.map((check) => [check.name, check.cost]));
  expect(costs['addon']).toContain('1/25 of its speed');
  for (const name of ['cpu', 'io_uring', 'nvme_path']) expect(costs[name]).toBeTypeOf('string');
});

describe('a path', () => {
  it('is examined without leaving anything behind', () => {
    const check = checkNvmePath(folder);
    expect(readdirSync(folder)).toEqual([]);
    expect(check.facts['writable']).toBe(true);
    expect(check.facts['free_bytes']).toBeGreaterThan(0);
  });

  it.runIf(native() !== undefined && process.platform === 'linux')(
    'that takes O_DIRECT has a grain that divides 4096',
    () => {
      const { direct, alignment_bytes: grain } = checkNvmePath(folder).facts;
      expect(direct === (grain !== null)).toBe(true);
      if (grain !== null) expect(4096 % Number(grain)).toBe(0);
    },
  );

  it('need not exist: the folder above answers', () => {
    const check = checkNvmePath(join(folder, 'later', 'deeper'));
    expect(check.facts).toMatchObject({ exists: false, writable: true });
    expect(readdirSync(folder)).toEqual([]);
  });

  it('that nobody can write is named with its errno', () => {
    const check = checkNvmePath('/proc/self');
    expect(check.ok).toBe(false);
    expect(check.facts['writable']).toBe(false);
    expect(check.facts['reason']).toMatch(/\(E[A-Z]+\)/);
    expect(check.cost).toContain('cannot hold the NVMe tier');
  });
});

it('reads the kernel files as they are written', () => {
  const limits = (soft: string) =>
    `Limit                     Soft Limit           Hard Limit           Units\nMax locked memory         ${soft}              8388608              bytes\n`;
  expect(checkMemlock(limits('8388608'))).toMatchObject({
    ok: false,
    facts: { limit_bytes: 8388608 },
  });
  expect(checkMemlock(limits('unlimited'))).toMatchObject({
    ok: true,
    facts: { limit_bytes: null, unlimited: true },
  });
  expect(checkMemlock('')).toMatchObject({ ok: false, facts: { limit_bytes: null } });
  expect(checkHugePages('always [madvise] never\n')).toMatchObject({ ok: true });
  expect(checkHugePages('always madvise [never]\n').cost).toContain('half of the O_DIRECT');
  expect(checkHugePages('')).toMatchObject({ ok: false, facts: { mode: null } });
});

it('knows which Node is new enough', () => {
  const versions = ['18.20.0', '20.18.9', '20.19.0', '21.0.0', '24.1.0'];
  expect(versions.map((version) => checkNode(version).ok)).toEqual([
    false,
    false,
    true,
    true,
    true,
  ]);
});
