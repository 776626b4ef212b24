/**
 * @file fio as a peer: the same requests, in the same order, on the same file, on buffers like ours.
 *
 * fio replays a log of the requests (`read_iolog`) by its io_uring engine. Its buffers come from
 * malloc, which glibc 2.35 and later puts on transparent huge pages when `glibc.malloc.hugetlb` is
 * 1; whether they really lie there is read from /proc while it runs. Its time is the one in its
 * report, so that starting it does not count.
 */
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

/** One request of a load. */
export interface Request {
  readonly op: 'read' | 'write';
  readonly offset: number;
}

export interface FioLoad {
  readonly dataFile: string;
  /** Where the log goes. */
  readonly folder: string;
  readonly requests: readonly Request[];
  readonly requestBytes: number;
  /** Requests in flight. */
  readonly depth: number;
}

/** What fio counted in one direction. */
interface Direction {
  readonly io_bytes: number;
  /** Milliseconds. */
  readonly runtime: number;
}

const SAMPLE_MS = 20;

/** fio's own name and version, or undefined where it is not installed. */
export function fioVersion(): string | undefined {
  const { status, stdout } = spawnSync('fio', ['--version'], { encoding: 'utf8' });
  return status === 0 ? stdout.trim() : undefined;
}

/** One load that fio can run again and again. */
export class Fio {
  readonly #load: FioLoad;
  readonly #log: string;
  #hugeBytes = Infinity;

  constructor(load: FioLoad) {
    this.#load = load;
    this.#log = join(load.folder, 'fio.log');
  }

  /** Bytes of fio's memory on huge pages, at most at a time; the least of all runs. */
  get hugeBytes(): number {
    return this.#hugeBytes === Infinity ? 0 : this.#hugeBytes;
  }

  /** Runs the load. @returns the seconds that all its requests take at the rate that fio reports */
  async run(): Promise<number> {
    const { folder, depth, requests, requestBytes } = this.#load;
    this.#writeLog();
    const child = spawn(
      'fio',
      [
        '--name=peer',
        '--thread', // In this very process, whose memory we look at.
        '--ioengine=io_uring',
        '--direct=1',
        `--iodepth=${depth}`,
        `--read_iolog=${this.#log}`,
        '--iomem=malloc',
        '--iomem_align=2m',
        '--output-format=json',
      ],
      { cwd: folder, env: { ...process.env, GLIBC_TUNABLES: 'glibc.malloc.hugetlb=1' } },
    );
    let report = '';
    let complaint = '';
    child.stdout.setEncoding('utf8').on('data', (text: string) => (report += text));
    child.stderr.setEncoding('utf8').on('data', (text: string) => (complaint += text));
    let hugeBytes = 0;
    const sampling = setInterval(() => {
      hugeBytes = Math.max(hugeBytes, anonHugeBytes(child.pid));
    }, SAMPLE_MS);
    const [status] = (await once(child, 'close')) as [number | null];
    clearInterval(sampling);
    if (status !== 0) throw new Error(`fio ended with ${status}: ${complaint}${report}`);
    this.#hugeBytes = Math.min(this.#hugeBytes, hugeBytes);
    const { read, write } = jobOf(report);
    const bytesPerSecond =
      (1000 * (read.io_bytes + write.io_bytes)) / Math.max(read.runtime, write.runtime);
    return (requests.length * requestBytes) / bytesPerSecond;
  }

  #writeLog(): void {
    const { dataFile, requests, requestBytes } = this.#load;
    const lines = requests.map(({ op, offset }) => `${dataFile} ${op} ${offset} ${requestBytes}`);
    writeFileSync(
      this.#log,
      ['fio version 2 iolog', `${dataFile} add`, `${dataFile} open`, ...lines]
        .map((line) => `${line}\n`)
        .join(''),
    );
  }
}

/** The job in fio's report, which notes may precede. */
function jobOf(report: string): { readonly read: Direction; readonly write: Direction } {
  const { jobs } = JSON.parse(report.slice(report.indexOf('{'))) as {
    readonly jobs: readonly { readonly read: Direction; readonly write: Direction }[];
  };
  const [job] = jobs;
  if (job === undefined) throw new Error('fio reported no job');
  return job;
}

/** Bytes of anonymous memory of process `pid` on huge pages; 0 once it is gone. */
function anonHugeBytes(pid: number | undefined): number {
  try {
    const text = readFileSync(`/proc/${pid}/smaps_rollup`, 'utf8');
    return 1024 * Number(/^AnonHugePages:\s+(\d+)/m.exec(text)?.[1] ?? 0);
  } catch {
    return 0;
  }
}
