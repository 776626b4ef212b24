// Goal: the examples run as their head comments say, and learn something within their budgets.
import { execFile } from 'node:child_process';
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect, it } from 'vitest';

const root = fileURLToPath(new URL('../..', import.meta.url));

interface Totals {
  readonly lossBefore: number;
  readonly lossAfter: number;
  readonly stateBytes?: number;
  readonly peakBytes: Readonly<Record<'device' | 'host' | 'nvme', number>>;
  readonly budgetBytes: Totals['peakBytes'];
  readonly bytesMoved: Readonly<Record<string, number>>;
}

/** Runs an example; returns its step lines and its last line. */
async function run(name: string, ...args: string[]): Promise<{ steps: number[]; totals: Totals }> {
  const command = ['--import', 'tsx', `examples/${name}.ts`, ...args];
  const { stdout, stderr } = await promisify(execFile)(process.execPath, command, { cwd: root });
  expect(stderr).toBe('');
  const lines = stdout.trimEnd().split('\n');
  const totals = JSON.parse(lines.pop() ?? '') as Totals;
  const steps = lines.map((line) => (JSON.parse(line) as { step: number }).step);
  for (const tier of ['device', 'host', 'nvme'] as const) {
    expect(totals.peakBytes[tier]).toBeGreaterThan(0);
    expect(totals.peakBytes[tier]).toBeLessThanOrEqual(totals.budgetBytes[tier]);
  }
  expect(totals.bytesMoved['nvme_read']).toBeGreaterThan(0);
  return { steps, totals };
}

it('fine-tune.ts lowers the loss on held-out text by a nat and saves a model folder', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'spillway-example-'));
  try {
    const { steps, totals } = await run('fine-tune', 'fixtures/gpt2-tiny', join(folder, 'model'));
    expect(steps).toEqual([1, 6, 11, 16]);
    expect(totals.lossAfter).toBeLessThan(totals.lossBefore - 1);
    expect(readdirSync(join(folder, 'model')).sort()).toEqual(['config.json', 'model.safetensors']);
  } finally {
    rmSync(folder, { recursive: true });
  }
});

it('own-blocks.ts halves the error on held-out samples; its state exceeds the memory it gets', async () => {
  const { steps, totals } = await run('own-blocks');
  expect(steps).toEqual([5, 10, 15, 20, 25]);
  expect(totals.lossAfter).toBeLessThan(totals.lossBefore / 2);
  const { device, host } = totals.budgetBytes;
  expect(totals.stateBytes).toBeGreaterThan(device + host);
});
