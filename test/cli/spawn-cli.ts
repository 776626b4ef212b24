/**
 * @file Runs the executable's source in a child process, as a shell would.
 */
import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('../..', import.meta.url));

/** What a command line left behind. */
export interface CliResult {
  readonly status: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs `spillway ...args` from the package root. */
export function spawnCli(
  args: readonly string[],
  env: Readonly<Record<string, string>> = {},
): Promise<CliResult> {
  const command = ['--import', 'tsx', 'src/cli/main.ts', ...args];
  const options = { cwd: root, env: { ...process.env, ...env }, maxBuffer: 2 ** 24 };
  return new Promise((resolve) => {
    execFile(process.execPath, command, options, (error, stdout, stderr) => {
      const status = error === null ? 0 : typeof error.code === 'number' ? error.code : -1;
      resolve({ status, stdout, stderr });
    });
  });
}
