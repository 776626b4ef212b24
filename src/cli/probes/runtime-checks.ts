/**
 * @file Node, the addon, the kernels, io_uring: what the program itself runs on.
 */
import { cpus, release } from 'node:os';
import { native, nativeStatus } from '../../../tiers/native/binding.js';
import { ringUnavailableReason } from '../../../tiers/nvme/create-io-backend.js';
import type { Check } from './check.js';

/** Same as `engines.node` in package.json. */
const REQUIRED_NODE = [20, 19] as const;

export function checkNode(version = process.versions.node): Check {
  const [major = 0, minor = 0] = version.split('.').map(Number);
  const [needMajor, needMinor] = REQUIRED_NODE;
  const ok = major > needMajor || (major === needMajor && minor >= needMinor);
  return {
    name: 'node',
    ok,
    summary: `Node ${version} on ${process.platform} ${process.arch}, kernel ${release()}`,
    cost: ok ? null : `not supported; install Node ${needMajor}.${needMinor} or newer`,
    facts: {
      version,
      required: `>=${needMajor}.${needMinor}`,
      platform: process.platform,
      arch: process.arch,
      kernel: release(),
    },
  };
}

/** Cost figures: bench of AdamW against memory bandwidth, docs/ARCHITECTURE.md. */
export function checkAddon(): Check {
  const status = nativeStatus();
  const loaded = status.kind === 'loaded';
  return {
    name: 'addon',
    ok: loaded,
    summary: loaded ? `loaded from ${status.path}` : `${status.kind}: ${status.reason}`,
    cost: loaded
      ? null
      : 'AdamW runs at about 1/25 of its speed; no io_uring, O_DIRECT or huge pages; run "npm run build:native"',
    facts: {
      status: status.kind,
      path: loaded ? status.path : null,
      reason: loaded ? null : status.reason,
    },
  };
}

export function checkCpu(): Check {
  const status = nativeStatus();
  const available = native()?.isaList() ?? [];
  const running = status.kind === 'loaded' ? status.isa : 'typescript';
  const vector = running !== 'typescript' && running !== 'portable';
  const best = available[0] ?? running;
  const cost = vector
    ? best === running
      ? null
      : `${best} kernels are there but SPILLWAY_ISA forces ${running}`
    : running === 'portable'
      ? 'kernels are scalar; AVX2, AVX-512 or NEON kernels keep pace with memory'
      : 'kernels are TypeScript: AdamW at about 1/25 of its speed, same bits';
  const cores = cpus();
  return {
    name: 'cpu',
    ok: cost === null,
    summary: `${cores[0]?.model ?? 'unknown'}, ${cores.length} cores; ${running} kernels`,
    cost,
    facts: {
      model: cores[0]?.model ?? null,
      cores: cores.length,
      isa: running,
      isa_available: [...available],
    },
  };
}

export function checkIoUring(): Check {
  const reason = ringUnavailableReason();
  return {
    name: 'io_uring',
    ok: reason === undefined,
    summary: reason ?? 'usable',
    cost:
      reason === undefined
        ? null
        : "NVMe transfers go through Node's thread pool: fewer in flight, more CPU, more copies",
    facts: { usable: reason === undefined, reason: reason ?? null },
  };
}
