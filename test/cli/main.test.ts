// Goal: the executable's exit statuses, its one line per error, and its standard output.
import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, expect, it } from 'vitest';
import { CONFIG_KEY_NAMES } from '../../src/config/schema.js';
import { spawnCli } from './spawn-cli.js';

const folder = mkdtempSync(join(tmpdir(), 'spillway-cli-'));
afterAll(() => {
  rmSync(folder, { recursive: true });
});

it('prints help that names every key', async () => {
  const help = await spawnCli(['train', '--help']);
  expect(help).toMatchObject({ status: 0, stderr: '' });
  for (const key of CONFIG_KEY_NAMES) expect(help.stdout).toContain(`--${key} <`);
});

it('ends with status 2 and one line on standard error for what the user can mend', async () => {
  const missing = join(folder, 'none');
  const cases = [
    [['trian'], /^error: USAGE_INVALID: unknown command 'trian' \(Did you mean train\?\).*\n$/],
    [
      ['train', '--model_name_or_path', missing, '--data_files', missing],
      /^error: MODEL_NOT_FOUND: .*\n$/,
    ],
  ] as const;
  const results = await Promise.all(cases.map(([args]) => spawnCli(args)));
  results.forEach((result, index) => {
    expect(result.stderr).toMatch(cases[index]![1]);
    expect(result.status).toBe(2);
    expect(result.stdout).toBe('');
  });
});

it('prints stack traces, causes included, only with --debug', async () => {
  const args = ['train', join(folder, 'none.yaml')];
  const result = await spawnCli([...args, '--debug']);
  expect(result.status).toBe(2);
  expect(result.stderr).toMatch(/^error: CONFIG_NOT_FOUND: /);
  expect(result.stderr).toMatch(/\n +at /);
  expect(result.stderr).toMatch(/\ncaused by: Error: ENOENT/);
});

it('survives a reader that closes the pipe', () => {
  // `true` exits at once; the status of the pipe's first command is what counts.
  const root = fileURLToPath(new URL('../..', import.meta.url));
  const command = 'set -o pipefail; "$0" --import tsx src/cli/main.ts train --help | true';
  execFileSync('bash', ['-c', command, process.execPath], { cwd: root, stdio: 'pipe' });
});

it.runIf(existsSync('/dev/full'))(
  'tells of output that cannot be printed for want of space',
  () => {
    const root = fileURLToPath(new URL('../..', import.meta.url));
    const command = '"$0" --import tsx src/cli/main.ts doctor > /dev/full';
    const shell = spawnSync('bash', ['-c', command, process.execPath], { cwd: root });
    expect(shell.stderr.toString()).toMatch(/^error: OUTPUT_FULL: .*errno=ENOSPC\)\n$/);
    expect(shell.status).toBe(1);
  },
);
