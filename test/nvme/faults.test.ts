// Goal: every planned fault surfaces once, typed, with path, offset and errno, and nothing else does.
import { closeSync, openSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';

import type { ErrorCode } from '../../core/errors.js';
import { createSyncIo } from '../../tiers/nvme/create-sync-io.js';
import { ringUnavailableReason } from '../../tiers/nvme/create-io-backend.js';
import { FaultInjector, type FaultOp, type FaultPlan } from '../../tiers/nvme/fault-plan.js';
import type { IoBackend, IoFile, SyncIo } from '../../tiers/nvme/io-backend.js';
import { SimulatedBackend } from '../../tiers/nvme/simulated-backend.js';
import { PAGE, buffer, failure, pattern, sameBytes, temporaryFolder } from './support.js';

const SIZE = 8 * PAGE;
const disposals: (() => unknown)[] = [];
afterEach(async () => {
  for (const dispose of disposals.splice(0)) await dispose();
});

async function simulated(plan: FaultPlan): Promise<{ backend: IoBackend; file: IoFile }> {
  const backend = new SimulatedBackend(plan);
  disposals.push(() => backend.dispose());
  const file = await backend.open(join(temporaryFolder(), 'data.bin'));
  await backend.reserve(file, SIZE);
  return { backend, file };
}

const OUTCOMES = [
  ['short', 'IO_SHORT', undefined],
  ['EIO', 'IO_ERROR', 'EIO'],
  ['ENOSPC', 'NVME_FULL', 'ENOSPC'],
] as const;

describe('SimulatedBackend', () => {
  const acts: Record<'read' | 'write', (backend: IoBackend, file: IoFile) => Promise<void>> = {
    read: (backend, file) => backend.read(file, 2 * PAGE, buffer(4 * PAGE)),
    write: (backend, file) => backend.write(file, 2 * PAGE, pattern(4 * PAGE, 1)),
  };
  for (const op of ['read', 'write'] as const) {
    for (const [kind, code, errno] of OUTCOMES) {
      it(`turns ${kind} on the second ${op} into ${code} and lets the others pass`, async () => {
        const { backend, file } = await simulated({ rules: [{ op, kind, nth: 2 }] });
        await acts[op](backend, file);
        const error = await failure(() => acts[op](backend, file));
        await acts[op](backend, file);
        expect(error.code).toBe(code satisfies ErrorCode);
        const where = { op, path: file.path, offset: 2 * PAGE, length: 4 * PAGE };
        expect(error.facts).toMatchObject(errno === undefined ? where : { ...where, errno });
        const moved = op === 'read' ? backend.bytesRead : backend.bytesWritten;
        expect(moved).toBe(2 * 4 * PAGE);
      });
    }
  }

  it('really writes the prefix of a short write, and no more', async () => {
    const { backend, file } = await simulated({ rules: [{ op: 'write', kind: 'short' }] });
    const source = pattern(4 * PAGE, 3);
    const error = await failure(() => backend.write(file, 0, source));
    expect(error.facts['transferredBytes']).toBe(2 * PAGE);
    const stored = readFileSync(file.path);
    expect(sameBytes(stored.subarray(0, 2 * PAGE), source.subarray(0, 2 * PAGE))).toBe(true);
    expect(stored.subarray(2 * PAGE).every((value) => value === 0)).toBe(true);
  });

  const others: [FaultOp, (backend: IoBackend, file: IoFile) => Promise<unknown>][] = [
    ['flush', (backend, file) => backend.flush(file)],
    ['reserve', (backend, file) => backend.reserve(file, 2 * SIZE)],
    ['open', (backend, file) => backend.open(`${file.path}.second`)],
  ];
  for (const [op, act] of others) {
    it(`fails ${op} as planned`, async () => {
      const eio = await simulated({ rules: [{ op, kind: 'EIO', nth: op === 'flush' ? 1 : 2 }] });
      const error = await failure(() => act(eio.backend, eio.file));
      expect(error.code).toBe('IO_ERROR');
      expect(error.facts).toMatchObject({ op, errno: 'EIO' });
      const full = await simulated({
        rules: [{ op, kind: 'ENOSPC', nth: op === 'flush' ? 1 : 2 }],
      });
      expect((await failure(() => act(full.backend, full.file))).code).toBe('NVME_FULL');
    });
  }

  it('strikes only the request that contains the given byte of the given file', async () => {
    const rule = { op: 'read', kind: 'EIO', path: 'data.bin', offset: 3 * PAGE + 5 } as const;
    const { backend, file } = await simulated({ rules: [rule] });
    await backend.read(file, 0, buffer(3 * PAGE));
    await backend.read(file, 4 * PAGE, buffer(PAGE));
    const error = await failure(() => backend.read(file, 2 * PAGE, buffer(2 * PAGE)));
    expect(error.facts['offset']).toBe(2 * PAGE);
  });
});

describe('FaultInjector', () => {
  it('strikes with the given probability, the same requests for the same seed', () => {
    const draw = (seed: number) => {
      const rule = { op: 'read', kind: 'EIO', probability: 0.25 } as const;
      const injector = new FaultInjector({ rules: [rule], seed });
      return Array.from({ length: 4000 }, () => injector.decide({ op: 'read', path: 'x' }));
    };
    const hits = draw(1).filter((kind) => kind === 'EIO').length;
    // Four standard deviations of a binomial are 110.
    expect(Math.abs(hits - 1000)).toBeLessThan(110);
    expect(draw(1)).toEqual(draw(1));
    expect(draw(1)).not.toEqual(draw(2));
  });

  it('refuses a plan with a short flush', () => {
    expect(() => new FaultInjector({ rules: [{ op: 'flush', kind: 'short' }] })).toThrow('short');
  });
});

const syncKinds =
  ringUnavailableReason() === undefined ? (['ring', 'blocking'] as const) : (['blocking'] as const);
for (const prefer of syncKinds) {
  describe(`SyncIo (${prefer}) with faults`, () => {
    const start = (io: SyncIo, op: 'read' | 'write', fd: number) =>
      op === 'read'
        ? io.read(fd, PAGE, buffer(4 * PAGE))
        : io.write(fd, PAGE, pattern(4 * PAGE, 9));
    for (const op of ['read', 'write'] as const) {
      for (const [kind, code, errno] of OUTCOMES) {
        it(`turns ${kind} on the second ${op} into ${code} at its own ticket`, async () => {
          const path = join(temporaryFolder(), 'data.bin');
          writeFileSync(path, new Uint8Array(SIZE));
          const fd = openSync(path, 'r+');
          disposals.push(() => closeSync(fd));
          const io = createSyncIo({ depth: 4, prefer, faults: { rules: [{ op, kind, nth: 2 }] } });
          disposals.push(() => io.dispose());
          const tickets = [start(io, op, fd), start(io, op, fd), start(io, op, fd)];
          io.wait(tickets[2]!);
          const error = await failure(() => io.wait(tickets[1]!));
          io.wait(tickets[0]!);
          expect(error.code).toBe(code);
          const where = { op, path, offset: PAGE, length: 4 * PAGE };
          expect(error.facts).toMatchObject(errno === undefined ? where : { ...where, errno });
          expect(op === 'read' ? io.bytesRead : io.bytesWritten).toBe(2 * 4 * PAGE);
        });
      }
    }
  });
}
