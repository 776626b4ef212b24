// Goal: each command line reaches its command with the right arguments, or is refused by code.
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, expect, it, vi } from 'vitest';
import { runCli } from '../../src/cli/run-cli.js';

const folder = mkdtempSync(join(tmpdir(), 'spillway-run-cli-'));
afterAll(() => {
  rmSync(folder, { recursive: true });
});

const stdout = vi.spyOn(process.stdout, 'write').mockReturnValue(true);
afterEach(() => {
  stdout.mockClear();
});

function printed(): string {
  return stdout.mock.calls.map(([text]) => String(text)).join('');
}

it('prints the version of package.json', async () => {
  const url = new URL('../../package.json', import.meta.url);
  const manifest = JSON.parse(readFileSync(url, 'utf8')) as { version: string };
  expect(await runCli(['--version'])).toBe(0);
  expect(printed()).toBe(`${manifest.version}\n`);
});

it.each([
  [[], 'USAGE_INVALID', 'no command'],
  [['--debug'], 'USAGE_INVALID', 'no command'],
  [['init', 'config.json'], 'USAGE_INVALID', 'OUT'],
  [['doctor', '--verbose'], 'USAGE_INVALID', '--verbose'],
  [['train', '--max-stpes', '5', '--debug'], 'CONFIG_UNKNOWN_KEY', 'did you mean "max_steps"'],
  [['train', '--debug', '/no/such.yaml'], 'CONFIG_NOT_FOUND', '/no/such.yaml'],
  [['train', '--device_memory', '8 gigs'], 'BYTE_SIZE_INVALID', 'device_memory'],
  [['init', 'a', 'b', '--seed', '-1'], 'CONFIG_INVALID', 'seed cannot be "-1"'],
  [['init', 'a', 'b', '--dtype', 'int8'], 'CONFIG_INVALID', 'float32 | bfloat16'],
  [['init', '/no/config.json', 'b'], 'MODEL_NOT_FOUND', '/no/config.json'],
  [['report'], 'USAGE_INVALID', 'OUTPUT_DIR'],
  [['report', '/no/such', '--pdf'], 'USAGE_INVALID', '--pdf'],
  [['report', '/no/such'], 'RUN_NOT_FOUND', '/no/such'],
])('refuses %j as %s', async (args, code, fragment) => {
  await expect(runCli(args)).rejects.toMatchObject({
    code,
    message: expect.stringContaining(fragment) as string,
  });
  expect(printed()).toBe('');
});

it('makes a checkpoint by init, and refuses to write over it', async () => {
  const config = join(folder, 'config.json');
  const model = { model_type: 'gpt2', vocab_size: 257, n_positions: 16, n_embd: 8 };
  writeFileSync(config, JSON.stringify({ ...model, n_layer: 1, n_head: 2 }));
  const out = join(folder, 'model');
  const args = ['init', config, out, '--seed', '7', '--dtype', 'bfloat16'];
  expect(await runCli(args)).toBe(0);
  // wte 257*8, wpe 16*8, block 12*8*8 + 13*8, last norm 2*8.
  const count = 257 * 8 + 16 * 8 + 12 * 64 + 13 * 8 + 16;
  expect(printed()).toBe(`${out}: ${count} parameters, bfloat16, seed 7\n`);
  const names = ['config.json', 'model.safetensors', 'tokenizer.json'];
  expect(readdirSync(out)).toEqual(expect.arrayContaining(names));
  await expect(runCli(args)).rejects.toMatchObject({ code: 'PATH_UNWRITABLE' });
});

it('examines the paths that doctor is given', async () => {
  expect(await runCli(['doctor', '--json', '--nvme_path', `${folder},/proc`])).toBe(0);
  const report = JSON.parse(printed()) as { checks: { name: string; facts: { path: string } }[] };
  const paths = report.checks.filter((check) => check.name === 'nvme_path');
  expect(paths.map((check) => check.facts.path)).toEqual([folder, '/proc']);
});

it('reports on a run, where it is told to', async () => {
  const run = join(folder, 'run');
  const page = join(folder, 'page.html');
  mkdirSync(run);
  writeFileSync(join(run, 'metrics.jsonl'), '{"step": 1, "loss": 2.5}\n');
  expect(await runCli(['report', run, '--out', page])).toBe(0);
  expect(printed()).toBe(`report written to ${page}\n`);
  expect(readFileSync(page, 'utf8')).toContain('training loss: 2.5 at 1');
});
