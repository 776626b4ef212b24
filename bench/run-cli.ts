/**
 * @file The built command line in child processes, watched from outside as a user would watch it.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

const CLI = fileURLToPath(new URL('../dist/src/cli/main.js', import.meta.url));

/** How often the kernel is asked for the most memory so far, which it keeps itself. */
const WATCH_MS = 200;

/** Bytes that the kernel moved from and to disks for a process. */
export interface DiskBytes {
  readonly read: number;
  readonly written: number;
}

/** A line of standard output, and when it came. */
export interface TimedLine {
  /** Seconds since the child began. */
  readonly at: number;
  readonly text: string;
  /** What the kernel had moved by then; undefined where it does not tell. */
  readonly disk: DiskBytes | undefined;
}

/** A command that ended well. */
export interface WatchedCommand {
  readonly lines: readonly TimedLine[];
  readonly seconds: number;
  /** The most that was resident (VmHWM); 0 where the kernel does not tell. */
  readonly peakRssBytes: number;
}

/**
 * Runs `spillway` with `args`; notes and errors go to standard error.
 *
 * @param onLine sees each line as it comes
 * @throws when it ends with another status than 0
 */
export async function runCli(
  args: readonly string[],
  env: NodeJS.ProcessEnv,
  onLine: (line: TimedLine) => void = () => undefined,
): Promise<WatchedCommand> {
  const started = performance.now();
  const seconds = (): number => (performance.now() - started) / 1000;
  const child = spawn(process.execPath, [CLI, ...args], {
    env,
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const closed = once(child, 'close') as Promise<[number | null, NodeJS.Signals | null]>;
  let peakRssBytes = 0;
  const look = (): void => {
    peakRssBytes = Math.max(peakRssBytes, residentPeak(child.pid));
  };
  const watch = setInterval(look, WATCH_MS);
  const lines: TimedLine[] = [];
  try {
    for await (const text of createInterface({ input: child.stdout })) {
      const line = { at: seconds(), text, disk: diskBytes(child.pid) };
      lines.push(line);
      look();
      onLine(line);
    }
    const [status, signal] = await closed;
    if (status !== 0) throw new Error(`spillway ${args[0]} ended with ${signal ?? status}`);
  } finally {
    clearInterval(watch);
  }
  return { lines, seconds: seconds(), peakRssBytes };
}

function residentPeak(pid: number | undefined): number {
  return Number(/^VmHWM:\s+(\d+) kB$/m.exec(processFile(pid, 'status'))?.[1] ?? 0) * 1024;
}

function diskBytes(pid: number | undefined): DiskBytes | undefined {
  const text = processFile(pid, 'io');
  const field = (name: string) => new RegExp(`^${name}: (\\d+)$`, 'm').exec(text)?.[1];
  const [read, written] = [field('read_bytes'), field('write_bytes')];
  if (read === undefined || written === undefined) return undefined;
  return { read: Number(read), written: Number(written) };
}

/** Empty where there is none: another system, or the process has ended. */
function processFile(pid: number | undefined, name: string): string {
  try {
    return readFileSync(`/proc/${pid}/${name}`, 'utf8');
  } catch {
    return '';
  }
}
