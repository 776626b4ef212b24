/**
 * @file NVMe I/O: each backend beside the raw loop on a blocking ring (a worker's, at the same
 * depth, no promise and no event loop) and, where it is installed, beside fio (bench/fio.ts).
 *
 * All run the same 1 MiB requests in the same shuffled order on the same file past the page cache,
 * taken in turn. `mixed` reads and writes alternately, as an update of states on NVMe does. Claimed
 * for the io_uring backend on huge pages, which is what training uses: `TARGET` of fio when fio's
 * buffers are on huge pages too, else of the raw loop. A case below it fails the process
 * (bench/alternate.ts). Run: `npm run bench -- ring`; the file goes under TMPDIR.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { createSlab } from '../tiers/host/slab.js';
import { ringUnavailableReason } from '../tiers/nvme/create-io-backend.js';
import { createSyncIo } from '../tiers/nvme/create-sync-io.js';
import type { IoBackend, IoFile } from '../tiers/nvme/io-backend.js';
import { RingBackend } from '../tiers/nvme/ring-backend.js';
import { ThreadPoolBackend } from '../tiers/nvme/thread-pool-backend.js';
import {
  alternate,
  median,
  printCase,
  ROUNDS,
  shareOf,
  verdictOf,
  type CaseLine,
  type Run,
  type Times,
} from './alternate.js';
import { Fio, fioVersion, type Request } from './fio.js';

type Bytes = Uint8Array<SharedArrayBuffer>;
type Load = 'read' | 'write' | 'mixed';

/** Of fio's speed, or of the raw loop's. */
const TARGET = 0.9;
const REQUEST_BYTES = 2 ** 20;
const REQUESTS = 512;
const BYTES = REQUESTS * REQUEST_BYTES;
/** The most requests in flight of any case. */
const BUFFERS = 8;

/** No read-ahead guesses this order (197 and 512 have no common factor). */
const ORDER = Array.from({ length: REQUESTS }, (_, index) => (index * 197) % REQUESTS);

interface Case {
  readonly name: string;
  readonly create: () => IoBackend;
  readonly depth: number;
  readonly buffers: readonly Bytes[];
  /** Whether training runs this way. */
  readonly claimed: boolean;
}

function cut(slab: Bytes): Bytes[] {
  return Array.from({ length: BUFFERS }, (_, index) =>
    slab.subarray(index * REQUEST_BYTES, (index + 1) * REQUEST_BYTES),
  );
}

function requestsOf(load: Load): Request[] {
  const alternating = (turn: number): 'read' | 'write' => (turn % 2 === 0 ? 'read' : 'write');
  return ORDER.map((index, turn) => ({
    op: load === 'mixed' ? alternating(turn) : load,
    offset: index * REQUEST_BYTES,
  }));
}

async function runBackend(
  backend: IoBackend,
  file: IoFile,
  requests: readonly Request[],
  buffers: readonly Bytes[],
): Promise<void> {
  let next = 0;
  const lane = async (buffer: Bytes): Promise<void> => {
    for (let request = requests[next++]; request !== undefined; request = requests[next++]) {
      await backend[request.op](file, request.offset, buffer);
    }
  };
  await Promise.all(buffers.map(lane));
}

function runRawLoop(fd: number, requests: readonly Request[], buffers: readonly Bytes[]): void {
  const depth = buffers.length;
  const io = createSyncIo({ depth });
  const tickets: number[] = [];
  for (const [turn, { op, offset }] of requests.entries()) {
    if (turn >= depth) io.wait(tickets[turn - depth]!);
    tickets.push(io[op](fd, offset, buffers[turn % depth]!));
  }
  for (const ticket of tickets.slice(-depth)) io.wait(ticket);
  io.dispose();
}

/** The case's line: rates, shares, and whether a claim holds. */
function lineOf(
  { name, depth, claimed }: Case,
  load: Load,
  direct: boolean,
  times: Times<string>,
  fio: Fio | undefined,
): CaseLine {
  const { backend = [], rawLoop = [], fio: fioTimes } = times;
  const rate = (seconds: readonly number[]): number => Math.round(BYTES / median(seconds));
  const shareOfRawLoop = shareOf(rawLoop, backend);
  const shareOfFio = fioTimes === undefined ? undefined : shareOf(fioTimes, backend);
  const equalBuffers = fio !== undefined && fio.hugeBytes >= depth * REQUEST_BYTES;
  const share = (equalBuffers ? shareOfFio : undefined) ?? shareOfRawLoop;
  return {
    case: `${name} ${load}`,
    depth,
    direct,
    bytes: BYTES,
    rounds: ROUNDS,
    bytesPerSecond: rate(backend),
    rawLoopBytesPerSecond: rate(rawLoop),
    shareOfRawLoop,
    ...(claimed && { fio: fioVersion() ?? 'skipped: not installed' }),
    ...(fioTimes !== undefined && {
      fioBuffers: equalBuffers ? 'transparent huge pages, as ours' : 'small pages',
      fioHugePageBytes: fio?.hugeBytes,
      fioBytesPerSecond: rate(fioTimes),
      shareOfFio,
    }),
    ...(claimed && {
      ceiling: equalBuffers ? 'fio' : 'raw loop',
      ...verdictOf(share, TARGET),
    }),
  };
}

async function benchCase(one: Case, huge: readonly Bytes[], folder: string): Promise<void> {
  const backend = one.create();
  const file = await backend.open(join(folder, 'data.bin'));
  await backend.reserve(file, BYTES);
  const own = one.buffers.slice(0, one.depth);
  // The first write into reserved space is slower than every later one.
  await runBackend(backend, file, requestsOf('write'), own);
  for (const load of ['read', 'write', 'mixed'] as const) {
    const requests = requestsOf(load);
    const fio =
      one.claimed && fioVersion() !== undefined
        ? new Fio({
            dataFile: file.path,
            folder,
            requests,
            requestBytes: REQUEST_BYTES,
            depth: one.depth,
          })
        : undefined;
    const runs: Record<string, Run> = {
      backend: () => runBackend(backend, file, requests, own),
      rawLoop: () => runRawLoop(file.fd, requests, huge.slice(0, one.depth)),
      ...(fio !== undefined && { fio: () => fio.run() }),
    };
    printCase(lineOf(one, load, file.direct, await alternate(runs), fio));
  }
  await backend.dispose();
}

export default async function benchRing(): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), 'spillway-bench-'));
  const huge = cut(createSlab(BUFFERS * REQUEST_BYTES).bytes.fill(1));
  const small = cut(createSlab(BUFFERS * REQUEST_BYTES, { hugePages: false }).bytes.fill(1));
  const ring = (depth: number) => (): IoBackend => new RingBackend({ depth });
  const cases: Case[] = [
    {
      name: 'thread-pool',
      create: () => new ThreadPoolBackend(),
      depth: 8,
      buffers: huge,
      claimed: false,
    },
  ];
  const reason = ringUnavailableReason();
  if (reason === undefined) {
    for (const depth of [4, 8]) {
      cases.push({ name: 'ring', create: ring(depth), depth, buffers: huge, claimed: true });
    }
    const name = 'ring, small pages';
    cases.push({ name, create: ring(8), depth: 8, buffers: small, claimed: false });
  } else {
    process.stderr.write(`ring: skipped: ${reason}\n`);
  }
  try {
    for (const one of cases) await benchCase(one, huge, folder);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
