// Goal: the blocking I/O of workers moves the right bytes, ticket by ticket, on O_DIRECT files.
import { join } from 'node:path';
import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import { ringUnavailableReason } from '../../tiers/nvme/create-io-backend.js';
import { createSyncIo } from '../../tiers/nvme/create-sync-io.js';
import type { IoFile } from '../../tiers/nvme/io-backend.js';
import { ThreadPoolBackend } from '../../tiers/nvme/thread-pool-backend.js';
import {
  PAGE,
  buffer,
  failure,
  openDescriptors,
  pattern,
  sameBytes,
  startWorker,
  temporaryFolder,
} from './support.js';

const PAGES = 64;

async function withFile(body: (file: IoFile) => Promise<void> | void): Promise<void> {
  const backend = new ThreadPoolBackend();
  try {
    const file = await backend.open(join(temporaryFolder(), 'data.bin'));
    await backend.reserve(file, PAGES * PAGE);
    await body(file);
  } finally {
    await backend.dispose();
  }
}

const kinds =
  ringUnavailableReason() === undefined ? (['ring', 'blocking'] as const) : (['blocking'] as const);
for (const prefer of kinds) {
  describe(`SyncIo (${prefer})`, () => {
    it('reads what it wrote whatever the depth and the order of waiting, and counts it', () =>
      fc.assert(
        fc.asyncProperty(
          fc.integer({ min: 1, max: 9 }),
          fc.uniqueArray(fc.nat(PAGES / 4 - 1), { minLength: 1 }),
          fc.boolean(),
          (depth, blocks, reverse) =>
            withFile((file) => {
              const io = createSyncIo({ depth, prefer });
              const sources = blocks.map((block) => pattern(4 * PAGE, block));
              const waitAll = (tickets: number[]) => {
                for (const ticket of reverse ? tickets.reverse() : tickets) io.wait(ticket);
              };
              waitAll(blocks.map((b, i) => io.write(file.fd, b * 4 * PAGE, sources[i]!)));
              const targets = blocks.map(() => buffer(4 * PAGE));
              waitAll(blocks.map((b, i) => io.read(file.fd, b * 4 * PAGE, targets[i]!)));
              targets.forEach((target, i) => expect(sameBytes(target, sources[i]!)).toBe(true));
              const moved = blocks.length * 4 * PAGE;
              expect([io.bytesRead, io.bytesWritten]).toEqual([moved, moved]);
              io.dispose();
            }),
        ),
        { numRuns: 15 },
      ));

    it('reports a read beyond the end as IO_SHORT with the path behind the descriptor', () =>
      withFile(async (file) => {
        const io = createSyncIo({ depth: 2, prefer });
        const ticket = io.read(file.fd, (PAGES - 1) * PAGE, buffer(2 * PAGE));
        const error = await failure(() => io.wait(ticket));
        expect(error.code).toBe('IO_SHORT');
        expect(error.facts).toMatchObject({ path: file.path, transferredBytes: PAGE });
        io.dispose();
      }));

    it('reports a closed descriptor as IO_ERROR with EBADF', async () => {
      const io = createSyncIo({ depth: 2, prefer });
      const ticket = io.read(1_000_000, 0, buffer(PAGE));
      const error = await failure(() => io.wait(ticket));
      expect([error.code, error.facts['errno']]).toEqual(['IO_ERROR', 'EBADF']);
      io.dispose();
    });

    it('refuses a ticket twice', () =>
      withFile((file) => {
        const io = createSyncIo({ depth: 2, prefer });
        const ticket = io.read(file.fd, 0, buffer(PAGE));
        io.wait(ticket);
        expect(() => io.wait(ticket)).toThrow(/assertion failed/);
        io.dispose();
      }));

    it('gives its descriptors back, requests in flight or not', () =>
      withFile((file) => {
        const before = openDescriptors();
        const io = createSyncIo({ depth: 8, prefer });
        for (let index = 0; index < 20; index += 1) io.read(file.fd, 0, buffer(PAGE));
        io.dispose();
        io.dispose();
        expect(openDescriptors()).toBe(before);
      }));

    it('works in a worker thread on the descriptor of the main thread', () =>
      withFile(async (file) => {
        const source = pattern(16 * PAGE, 5);
        const target = buffer(16 * PAGE);
        const script = new URL('./sync-io-worker.ts', import.meta.url);
        const worker = startWorker(script, {
          workerData: { fd: file.fd, source, target, prefer },
        });
        const message = await new Promise((resolve, reject) => {
          worker.once('message', resolve);
          worker.once('error', reject);
        });
        await worker.terminate();
        expect(message).toEqual([16 * PAGE, 16 * PAGE]);
        expect(sameBytes(target, source)).toBe(true);
      }));
  });
}
