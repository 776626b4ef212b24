// Goal: a model whose state is 15 times its device budget trains within its budgets and within the
// resident memory that the issue allows, and the engine counts the bytes that the kernel counts.
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';
import { native } from '../../tiers/native/binding.js';
import { withFolder } from '../engine/run-engine.js';

const MIB = 2 ** 20;
/** Resident memory by device: the plain JavaScript device's garbage is not ours to place. */
const MAX_RSS_BYTES = { cpu: 640 * MIB, native: 428 * MIB };

interface Report {
  readonly parameters: number;
  readonly stateBytes: number;
  readonly losses: readonly number[];
  readonly peakBytes: { readonly device: number; readonly host: number };
  readonly bytesMoved: { readonly nvme_read: number; readonly nvme_write: number };
  readonly kernelRead: number;
  readonly kernelWritten: number;
  readonly peakRssBytes: number;
}

const DEVICES = native() === undefined ? (['cpu'] as const) : (['cpu', 'native'] as const);

it.each(DEVICES)('trains 60 M parameters under 64 + 64 MiB on %s', async (device) => {
  const script = fileURLToPath(new URL('train-60m.mjs', import.meta.url));
  const { stdout } = await withFolder((folder) =>
    promisify(execFile)(process.execPath, [script, '64MiB', '64MiB', folder, device]),
  );
  console.log(stdout.trim());
  const report = JSON.parse(stdout) as Report;
  expect(report.parameters).toBeGreaterThan(62.9e6);
  expect(report.stateBytes).toBeGreaterThanOrEqual(960 * MIB);
  expect(report.losses.every((loss) => loss > 9 && loss < 12)).toBe(true);
  expect(report.peakBytes.device).toBeLessThanOrEqual(64 * MIB);
  expect(report.peakBytes.host).toBeLessThanOrEqual(64 * MIB);
  expect(report.peakRssBytes).toBeLessThanOrEqual(MAX_RSS_BYTES[device]);
  expect(Math.abs(report.bytesMoved.nvme_read / report.kernelRead - 1)).toBeLessThan(0.02);
  expect(Math.abs(report.bytesMoved.nvme_write / report.kernelWritten - 1)).toBeLessThan(0.02);
});
