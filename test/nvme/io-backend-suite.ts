/** @file One test body for every IoBackend; a test file per backend calls it. */
import { statSync } from 'node:fs';
import { join } from 'node:path';
import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import type { IoBackend, IoFile } from '../../tiers/nvme/io-backend.js';
import {
  PAGE,
  buffer,
  failure,
  openDescriptors,
  pattern,
  sameBytes,
  temporaryFolder,
} from './support.js';

const FILE_PAGES = 64;

/** Runs `body` with a backend and one reserved file. */
async function withFile(
  create: () => IoBackend,
  body: (backend: IoBackend, file: IoFile) => Promise<void>,
): Promise<void> {
  const backend = create();
  try {
    const file = await backend.open(join(temporaryFolder(), 'data.bin'));
    await backend.reserve(file, FILE_PAGES * PAGE);
    await body(backend, file);
  } finally {
    await backend.dispose();
  }
}

export function describeBackend(name: string, create: () => IoBackend): void {
  describe(name, () => {
    it('reads back what was written at any page, in any order, many at a time, and counts it', () =>
      fc.assert(
        fc.asyncProperty(
          fc.uniqueArray(fc.nat(FILE_PAGES - 1), { minLength: 1, maxLength: 40 }),
          fc.infiniteStream(fc.integer({ min: 1, max: 8 })),
          async (starts, lengths) => {
            await withFile(create, async (backend, file) => {
              const model = new Uint8Array(FILE_PAGES * PAGE);
              const free = Array.from({ length: FILE_PAGES }, () => true);
              const requests: { offset: number; bytes: Uint8Array<SharedArrayBuffer> }[] = [];
              for (const [seed, start] of starts.entries()) {
                let pages = 0;
                const wanted = Number(lengths.next().value);
                while (pages < wanted && free[start + pages] === true) {
                  free[start + pages] = false;
                  pages += 1;
                }
                if (pages === 0) continue;
                const bytes = pattern(pages * PAGE, seed);
                model.set(bytes, start * PAGE);
                requests.push({ offset: start * PAGE, bytes });
              }
              await Promise.all(requests.map((r) => backend.write(file, r.offset, r.bytes)));
              const targets = requests.map((r) => buffer(r.bytes.byteLength));
              const reads = requests.map((r, i) => backend.read(file, r.offset, targets[i]!));
              await Promise.all(reads);
              const moved = requests.reduce((sum, r) => sum + r.bytes.byteLength, 0);
              expect([backend.bytesRead, backend.bytesWritten]).toEqual([moved, moved]);
              targets.forEach((target, i) => {
                expect(sameBytes(target, requests[i]!.bytes)).toBe(true);
              });
              const whole = buffer(FILE_PAGES * PAGE);
              await backend.read(file, 0, whole);
              expect(sameBytes(whole, model)).toBe(true);
            });
          },
        ),
        { numRuns: 15 },
      ));

    it('serves a hundred requests of 64 KiB at once, each with its own bytes', () =>
      withFile(create, async (backend, file) => {
        const sources = Array.from({ length: 4 }, (_, seed) => pattern(16 * PAGE, seed));
        await Promise.all(
          sources.map((source, index) => backend.write(file, index * 16 * PAGE, source)),
        );
        const targets = Array.from({ length: 100 }, () => buffer(16 * PAGE));
        await Promise.all(
          targets.map((target, index) => backend.read(file, (index % 4) * 16 * PAGE, target)),
        );
        for (const [index, target] of targets.entries()) {
          expect(sameBytes(target, sources[index % 4]!)).toBe(true);
        }
        expect(backend.bytesRead).toBe(100 * 16 * PAGE);
      }));

    it('rejects a read beyond the end as IO_SHORT, counts nothing, and goes on working', () =>
      withFile(create, async (backend, file) => {
        const offset = (FILE_PAGES - 1) * PAGE;
        const error = await failure(() => backend.read(file, offset, buffer(2 * PAGE)));
        expect(error.code).toBe('IO_SHORT');
        expect(error.facts).toMatchObject({
          path: file.path,
          offset,
          length: 2 * PAGE,
          transferredBytes: PAGE,
        });
        expect(backend.bytesRead).toBe(0);
        await backend.read(file, offset, buffer(PAGE));
        expect(backend.bytesRead).toBe(PAGE);
      }));

    it('makes the file exactly as long as reserved, longer or shorter', () =>
      withFile(create, async (backend, file) => {
        await backend.reserve(file, 3 * PAGE);
        expect(statSync(file.path).size).toBe(3 * PAGE);
        await backend.reserve(file, 9 * PAGE);
        expect(statSync(file.path).size).toBe(9 * PAGE);
      }));

    it('refuses to reserve more than the disk has, with the numbers, and leaves the file', () =>
      withFile(create, async (backend, file) => {
        const error = await failure(() => backend.reserve(file, 2 ** 50));
        expect(error.code).toBe('NVME_FULL');
        expect(error.facts).toMatchObject({ path: file.path, neededBytes: 2 ** 50 });
        expect(error.facts['freeBytes']).toBeLessThan(2 ** 50);
        expect(statSync(file.path).size).toBe(FILE_PAGES * PAGE);
      }));

    it('refuses a second open of the same file as STORE_LOCKED until the first is closed', async () => {
      const [first, second] = [create(), create()];
      const path = join(temporaryFolder(), 'data.bin');
      const file = await first.open(path);
      const error = await failure(() => second.open(path));
      expect(error.code).toBe('STORE_LOCKED');
      expect(error.facts['path']).toBe(path);
      expect((await failure(() => first.open(path))).code).toBe('STORE_LOCKED');
      await first.close(file);
      await second.close(await second.open(path));
      await Promise.all([first.dispose(), second.dispose()]);
    });

    it('refuses a path that is no folder as PATH_UNWRITABLE', () =>
      withFile(create, async (backend, file) => {
        const error = await failure(() => backend.open(join(file.path, 'below-a-file')));
        expect(error.code).toBe('PATH_UNWRITABLE');
      }));

    it('flushes what was written', () =>
      withFile(create, async (backend, file) => {
        await backend.write(file, 0, pattern(PAGE, 1));
        await backend.flush(file);
        expect(backend.bytesWritten).toBe(PAGE);
      }));

    it('gives every descriptor back, on dispose in the middle of requests too', async () => {
      const before = openDescriptors();
      await withFile(create, async (backend, file) => {
        const requests = Array.from({ length: 60 }, (_, index) =>
          backend.write(file, (index % FILE_PAGES) * PAGE, pattern(PAGE, index)),
        );
        // Some of them run already, others still wait.
        const settled = Promise.allSettled(requests);
        await Promise.resolve();
        await backend.dispose();
        for (const outcome of await settled) {
          if (outcome.status === 'rejected') {
            expect(outcome.reason).toMatchObject({ code: 'ENGINE_CLOSED' });
          }
        }
        const late = await failure(() => backend.write(file, 0, pattern(PAGE, 1)));
        expect(late.code).toBe('ENGINE_CLOSED');
      });
      expect(openDescriptors()).toBe(before);
    });
  });
}
