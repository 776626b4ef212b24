// Goal: GPT-2-small at T = 512 trains on the native device within 192 MiB, without any kernel of the
// cpu backend. How free the event loop stays is measured by `npm run bench -- event-loop`.
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';
import { native } from '../../tiers/native/binding.js';
import { withFolder } from '../engine/run-engine.js';

const MIB = 2 ** 20;

interface Report {
  readonly parameters: number;
  readonly losses: readonly number[];
  readonly cpuFallbacks: Readonly<Record<string, number>>;
  readonly peakBytes: { readonly device: number; readonly host: number };
}

it.runIf(native() !== undefined)(
  'trains 124 M parameters in 192 MiB of device memory',
  async () => {
    const script = fileURLToPath(new URL('gpt2-small.mjs', import.meta.url));
    const { stdout } = await withFolder((folder) =>
      promisify(execFile)(process.execPath, [script, '192MiB', '256MiB', folder, '2']),
    );
    console.log(stdout.trim());
    const report = JSON.parse(stdout) as Report;
    expect(report.parameters).toBe(124_439_808);
    expect(report.losses.at(-1)).toBeLessThan(report.losses[0]!);
    expect(report.cpuFallbacks).toEqual({});
    expect(report.peakBytes.device).toBeLessThanOrEqual(192 * MIB);
    expect(report.peakBytes.host).toBeLessThanOrEqual(256 * MIB);
  },
);
