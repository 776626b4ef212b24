/**
 * @file Runs the built executable in child processes, with its own folder of models and data.
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll } from 'vitest';

const root = fileURLToPath(new URL('../..', import.meta.url));
/** What `npm run build` makes; `npm test` builds first. */
export const EXECUTABLE = join(root, 'dist/src/cli/main.js');
/** GPT-2 with 131 tokens, 40 positions and 24,544 parameters. */
export const TINY_MODEL = join(root, 'fixtures/gpt2-tiny');
export const TINY_VOCABULARY = 131;

/** What a process left behind. */
export interface Outcome {
  readonly status: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** Flags by key, as configuration keys are written. */
export type Flags = Readonly<Record<string, string | number>>;

export function trainArguments(flags: Flags): string[] {
  return ['train', ...Object.entries(flags).flatMap(([key, value]) => [`--${key}`, `${value}`])];
}

/** Runs `command args`; `onStart` sees the running child, `environment` is added to ours. */
export function runProcess(
  command: string,
  args: readonly string[],
  onStart: (child: ChildProcess) => void = () => undefined,
  environment: NodeJS.ProcessEnv = {},
): Promise<Outcome> {
  return new Promise((resolve, reject) => {
    const env = { ...process.env, ...environment };
    const child = spawn(command, args, { cwd: root, env, stdio: ['ignore', 'pipe', 'pipe'] });
    let [stdout, stderr] = ['', ''];
    child.stdout.on('data', (data: Buffer) => (stdout += data.toString()));
    child.stderr.on('data', (data: Buffer) => (stderr += data.toString()));
    child.on('error', reject);
    child.on('close', (status) => resolve({ status, stdout, stderr }));
    onStart(child);
  });
}

/** Runs `spillway train` with `flags`. */
export function train(flags: Flags, ...more: readonly string[]): Promise<Outcome> {
  return runProcess(process.execPath, [EXECUTABLE, ...trainArguments(flags), ...more]);
}

/** A folder that is removed after the calling file's tests. */
export function workFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'spillway-end-to-end-'));
  afterAll(() => {
    rmSync(folder, { recursive: true });
  });
  return folder;
}

/** Writes `rows` as JSONL and returns the path. */
export function writeJsonl(path: string, rows: readonly object[]): string {
  writeFileSync(path, rows.map((row) => `${JSON.stringify(row)}\n`).join(''));
  return path;
}

export function readJson(path: string): unknown {
  return JSON.parse(readFileSync(path, 'utf8'));
}

/** Names and hashes of all files below `folder`, without those that `skip` accepts. */
export function snapshot(
  folder: string,
  skip: (name: string) => boolean = () => false,
): Record<string, string> {
  const entries = readdirSync(folder, { recursive: true, withFileTypes: true });
  const files = entries.filter((entry) => entry.isFile() && !skip(entry.name));
  const paths = files.map((entry) => join(entry.parentPath, entry.name)).sort();
  return Object.fromEntries(
    paths.map((path) => [path, createHash('sha256').update(readFileSync(path)).digest('hex')]),
  );
}
