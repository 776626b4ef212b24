/**
 * @file Benchmark of NVMe I/O: each backend beside the blocking ring of a worker (depth 8, huge
 * pages) in the same process, the two taken alternately. 1 MiB requests in random order.
 *
 * Prints one JSON line per case; medians. Run: `node --import tsx bench/ring.ts [FOLDER]`.
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

type Bytes = Uint8Array<SharedArrayBuffer>;
type Op = 'read' | 'write';
/** `mixed`: reads and writes in turn, as an update of states on NVMe moves them. */
type Load = Op | 'mixed';

const REQUEST_BYTES = 2 ** 20;
const REQUESTS = 192;
const ROUNDS = 5;
/** As many as requests in flight at most, in both: buffers that stay in the cache are faster. */
const BUFFERS = 8;

/** Request indices in an order that no read-ahead guesses (97 and 192 have no common factor). */
const ORDER = Array.from({ length: REQUESTS }, (_, index) => (index * 97) % REQUESTS);

function cut(slab: Bytes): Bytes[] {
  return Array.from({ length: BUFFERS }, (_, index) =>
    slab.subarray(index * REQUEST_BYTES, (index + 1) * REQUEST_BYTES),
  );
}

/** What the request number `turn` of a load does. */
function opOf(load: Load, turn: number): Op {
  if (load !== 'mixed') return load;
  return turn % 2 === 0 ? 'read' : 'write';
}

async function runBackend(
  backend: IoBackend,
  file: IoFile,
  load: Load,
  depth: number,
  buffers: readonly Bytes[],
): Promise<void> {
  let next = 0;
  const lane = async (buffer: Bytes): Promise<void> => {
    while (next < REQUESTS) {
      const turn = next++;
      const offset = ORDER[turn]! * REQUEST_BYTES;
      await backend[opOf(load, turn)](file, offset, buffer);
    }
  };
  await Promise.all(buffers.slice(0, depth).map(lane));
}

function runBlockingRing(fd: number, load: Load, buffers: readonly Bytes[]): void {
  const io = createSyncIo({ depth: BUFFERS });
  const tickets: number[] = [];
  for (const [turn, index] of ORDER.entries()) {
    if (turn >= BUFFERS) io.wait(tickets[turn - BUFFERS]!);
    tickets.push(io[opOf(load, turn)](fd, index * REQUEST_BYTES, buffers[turn % BUFFERS]!));
  }
  for (const ticket of tickets.slice(-BUFFERS)) io.wait(ticket);
  io.dispose();
}

async function secondsOf(action: () => unknown): Promise<number> {
  const start = performance.now();
  await action();
  return (performance.now() - start) / 1000;
}

const median = (values: number[]): number => values.sort((a, b) => a - b)[values.length >> 1]!;

const folder = mkdtempSync(join(process.argv[2] ?? tmpdir(), 'spillway-bench-'));
const huge = cut(createSlab(BUFFERS * REQUEST_BYTES).bytes.fill(1));
const small = cut(createSlab(BUFFERS * REQUEST_BYTES, { hugePages: false }).bytes.fill(1));
const ring = ringUnavailableReason() === undefined;
const cases: { name: string; backend: () => IoBackend; depth: number; buffers: Bytes[] }[] = [
  { name: 'thread-pool', backend: () => new ThreadPoolBackend(), depth: 8, buffers: huge },
];
for (const depth of ring ? [1, 4, 8] : []) {
  cases.push({ name: 'ring', backend: () => new RingBackend({ depth }), depth, buffers: huge });
}
if (ring) {
  const backend = (): IoBackend => new RingBackend({ depth: 8 });
  cases.push({ name: 'ring, small pages', backend, depth: 8, buffers: small });
}

try {
  for (const { name, backend: create, depth, buffers } of cases) {
    const backend = create();
    const file = await backend.open(join(folder, 'data.bin'));
    await backend.reserve(file, REQUESTS * REQUEST_BYTES);
    // The first write into reserved space is slower than every later one.
    await runBackend(backend, file, 'write', depth, buffers);
    for (const load of ['read', 'write', 'mixed'] as const) {
      const times: number[] = [];
      const references: number[] = [];
      for (let round = 0; round < ROUNDS; round += 1) {
        times.push(await secondsOf(() => runBackend(backend, file, load, depth, buffers)));
        references.push(await secondsOf(() => runBlockingRing(file.fd, load, huge)));
      }
      const bytes = REQUESTS * REQUEST_BYTES;
      const line = {
        case: `${name} ${load}`,
        depth,
        direct: file.direct,
        bytes,
        bytesPerSecond: Math.round(bytes / median(times)),
        blockingRingBytesPerSecond: Math.round(bytes / median(references)),
        ratio: Number((median(references) / median(times)).toFixed(3)),
      };
      console.log(JSON.stringify(line));
    }
    await backend.dispose();
  }
} finally {
  rmSync(folder, { recursive: true, force: true });
}
