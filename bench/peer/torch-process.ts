/**
 * @file A Python process with torch that times things on request, so that a benchmark can take
 * turns with it in one run.
 *
 * One JSON object per line each way: a request, its answer. The interpreter is `SPILLWAY_PYTHON`,
 * else `python3`.
 */
import { spawn, spawnSync, type ChildProcessByStdio } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import type { Readable, Writable } from 'node:stream';

const python = (): string => process.env['SPILLWAY_PYTHON'] ?? 'python3';

/** The environment without what would set torch's threads. */
function environment(): NodeJS.ProcessEnv {
  const numbers = ['OPENBLAS_NUM_THREADS', 'OMP_NUM_THREADS', 'MKL_NUM_THREADS'];
  return Object.fromEntries(
    Object.entries(process.env).filter(([name]) => !numbers.includes(name)),
  );
}

export class TorchProcess {
  readonly #child: ChildProcessByStdio<Writable, Readable, null>;
  readonly #lines: AsyncIterator<string>;

  private constructor(script: string) {
    this.#child = spawn(python(), [script], {
      env: environment(),
      stdio: ['pipe', 'pipe', 'inherit'],
    });
    this.#lines = createInterface({ input: this.#child.stdout })[Symbol.asyncIterator]();
  }

  /** Starts `script`; undefined where the interpreter or its torch is missing. */
  static start(script: string): TorchProcess | undefined {
    const { status } = spawnSync(python(), ['-c', 'import torch'], { env: environment() });
    return status === 0 ? new TorchProcess(script) : undefined;
  }

  /** The script's answer. Rejects when it ends instead. */
  async ask(request: object): Promise<Readonly<Record<string, number>>> {
    this.#child.stdin.write(`${JSON.stringify(request)}\n`);
    const line = await this.#lines.next();
    if (line.done === true) throw new Error('the torch process ended before it answered');
    return JSON.parse(line.value) as Record<string, number>;
  }

  async close(): Promise<void> {
    const ended = once(this.#child, 'exit');
    this.#child.stdin.end();
    await ended;
  }
}
