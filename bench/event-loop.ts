/**
 * @file How free the event loop stays while GPT-2-small trains at T = 512 with one device thread.
 *
 * The child process compares the delay (perf_hooks, resolution 1 ms) with its own idle baseline and
 * times every launch. Prints its JSON line.
 */
import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

/** Three steps after a first one that warms up. */
export async function benchEventLoop(): Promise<void> {
  const script = fileURLToPath(new URL('../test/big/gpt2-small.mjs', import.meta.url));
  const folder = mkdtempSync(join(tmpdir(), 'spillway-bench-'));
  try {
    const { stdout } = await promisify(execFile)(
      process.execPath,
      [script, '192MiB', '256MiB', folder, '3'],
      { env: { ...process.env, SPILLWAY_THREADS: '1' } },
    );
    process.stdout.write(stdout);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
