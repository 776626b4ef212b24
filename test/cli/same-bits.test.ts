// Goal: a whole run gives the same bits on every instruction set, with any number of threads, and
// (on the cpu device) without the addon.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { native } from '../../tiers/native/binding.js';
import {
  EXECUTABLE,
  TINY_MODEL,
  runProcess,
  trainArguments,
  workFolder,
  writeJsonl,
} from './end-to-end.js';

const folder = workFolder();
const data = writeJsonl(
  join(folder, 'rows.jsonl'),
  Array.from({ length: 6 }, (_, row) => ({
    input_ids: Array.from({ length: 9 + row }, (__, i) => 3 + ((row + i) % 7) * 11),
  })),
);

/** Losses, gradient norms and weights of a bfloat16 run with states on NVMe. */
async function run(
  name: string,
  device: string,
  environment: NodeJS.ProcessEnv,
): Promise<{ metrics: unknown[]; weights: string }> {
  const output = join(folder, name);
  const flags = {
    model_name_or_path: TINY_MODEL,
    data_files: data,
    output_dir: output,
    device,
    dtype: 'bfloat16',
    device_memory: '2MiB',
    host_memory: '12MiB',
    nvme_path: join(folder, 'nvme'),
    'offload_optimizer.device': 'nvme',
    gradient_accumulation_steps: 2,
    max_steps: 4,
    learning_rate: 5e-3,
    logging_steps: 1,
    save_strategy: 'no',
  };
  const args = [EXECUTABLE, ...trainArguments(flags)];
  const { status, stderr } = await runProcess(process.execPath, args, undefined, environment);
  expect(status, stderr).toBe(0);
  const lines = readFileSync(join(output, 'metrics.jsonl'), 'utf8').trimEnd().split('\n');
  const metrics = lines.map((line) => {
    const { loss, grad_norm } = JSON.parse(line) as { loss: number; grad_norm: number };
    return { loss, grad_norm };
  });
  return { metrics, weights: readFileSync(join(output, 'model.safetensors'), 'base64') };
}

const addon = native();

describe.runIf(addon !== undefined)('with the addon', () => {
  it('computes the same bits on every instruction set with 1 and 2 threads', async () => {
    const [first, ...others] = addon!
      .isaList()
      .flatMap((isa) => [1, 2].map((threads) => ({ isa, threads })));
    const environmentOf = ({ isa, threads }: { isa: string; threads: number }) => ({
      SPILLWAY_ISA: isa,
      SPILLWAY_THREADS: String(threads),
    });
    const expected = await run('first', 'native', environmentOf(first!));
    expect(expected.metrics).toHaveLength(4);
    for (const [index, other] of others.entries()) {
      const actual = await run(`other-${index}`, 'native', environmentOf(other));
      expect(actual, JSON.stringify(other)).toEqual(expected);
    }
  });

  it('computes on the cpu device what TypeScript alone computes', async () => {
    const withAddon = await run('with', 'cpu', {});
    expect(await run('without', 'cpu', { SPILLWAY_NATIVE: 'off' })).toEqual(withAddon);
  });
});
