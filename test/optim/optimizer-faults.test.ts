// Goal: a fault in a worker's I/O, or its death, surfaces once, typed; the pool can still be closed.
import { writeSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';

import type { ErrorCode } from '../../core/errors.js';
import { CHUNK_ELEMENTS } from '../../core/types.js';
import { OptimizerPool } from '../../src/optim/optimizer-pool.js';
import type { StagingShape } from '../../src/optim/staging.js';
import { native } from '../../tiers/native/binding.js';
import type { FaultRule } from '../../tiers/nvme/fault-plan.js';
import {
  CountingArena,
  differences,
  expectedStates,
  placeShard,
  randomStates,
  StateFile,
} from './shards.js';

const SHAPE: StagingShape = { dtype: 'float32', nvmeStates: ['param', 'exp_avg'], depth: 3 };
const LENGTH = 2 * CHUNK_ELEMENTS + 9;
const hasRing = native()?.ringProbe() === 0;

let file: StateFile;
let arena: CountingArena;
let pool: OptimizerPool | undefined;
beforeAll(() => {
  file = new StateFile();
});
afterEach(async () => {
  await pool?.close();
  expect(arena.liveBytes).toBe(0);
});
afterAll(() => file.dispose());

async function start(
  io: 'ring' | 'blocking' | 'auto',
  rules: readonly FaultRule[] = [],
): Promise<OptimizerPool> {
  arena = new CountingArena();
  pool = await OptimizerPool.create({
    workers: 1,
    arena,
    io,
    staging: SHAPE,
    filePaths: [file.path],
    faults: { rules },
  });
  return pool;
}

const FAULTS: readonly { rule: FaultRule; code: ErrorCode }[] = [
  { rule: { op: 'read', kind: 'EIO', nth: 3 }, code: 'IO_ERROR' },
  { rule: { op: 'write', kind: 'EIO', nth: 2 }, code: 'IO_ERROR' },
  { rule: { op: 'write', kind: 'ENOSPC', nth: 1 }, code: 'NVME_FULL' },
  { rule: { op: 'read', kind: 'short', nth: 1 }, code: 'IO_SHORT' },
  { rule: { op: 'write', kind: 'short', nth: 3 }, code: 'IO_SHORT' },
];

describe.each(['ring', 'blocking'] as const)('a fault in a worker on %s', (io) => {
  it.for(FAULTS)(
    '$rule.kind on $rule.op number $rule.nth is $code, once',
    async (fault, context) => {
      if (io === 'ring' && !hasRing) context.skip('no io_uring here');
      const running = await start(io, [fault.rule]);
      const states = randomStates(LENGTH, 'float32', 1);
      const [faulty, next] = [0, 1].map(() => placeShard(states, SHAPE.nvmeStates, file));
      const outcomes = await Promise.allSettled([
        running.update(faulty!.job),
        running.update(next!.job),
      ]);
      expect(outcomes[0]).toMatchObject({
        status: 'rejected',
        reason: {
          name: 'SpillwayError',
          code: fault.code,
          facts: { op: fault.rule.op, path: file.path, fileIndex: 0, fd: file.fd },
        },
      });
      expect(outcomes[1].status).toBe('fulfilled');
      expect(differences(next!.read(), expectedStates(states))).toEqual([]);
    },
  );
});

describe('a chunk that changed on disk', () => {
  it('is STATE_CORRUPT with state, file, offset and chunk', async () => {
    const running = await start('auto');
    const shard = placeShard(randomStates(LENGTH, 'float32', 2), SHAPE.nvmeStates, file);
    const { expAvg } = shard.job;
    if (expAvg.kind !== 'nvme') throw new Error('exp_avg is on NVMe');
    const offset = expAvg.offset + expAvg.chunkBytes;
    writeSync(file.fd, Uint8Array.of(0xa5), 0, 1, offset + 12_345);
    await expect(running.update(shard.job)).rejects.toMatchObject({
      code: 'STATE_CORRUPT',
      facts: { state: 'exp_avg', path: file.path, fileIndex: 0, fd: file.fd, offset, chunk: 1 },
    });
  });
});

describe('the death of a thread', () => {
  it('is WORKER_FAILED for its update and all that wait; a neighbour still finishes', async () => {
    arena = new CountingArena();
    pool = await OptimizerPool.create({
      workers: 2,
      arena,
      io: 'auto',
      staging: { ...SHAPE, nvmeStates: [] },
      workerFile: fileURLToPath(new URL('./crashing-worker.ts', import.meta.url)),
    });
    const [dies, lives, waits] = [1, 2, 3].map((length) => {
      return pool!.update(placeShard(randomStates(length, 'float32', 3), [], file).job);
    });
    const outcomes = await Promise.allSettled([dies, lives, waits]);
    expect(outcomes.map(({ status }) => status)).toEqual(['rejected', 'fulfilled', 'rejected']);
    expect(outcomes[0]).toMatchObject({
      reason: { code: 'WORKER_FAILED', message: expect.stringContaining('thread lost') as string },
    });
    expect(outcomes[2]).toMatchObject({ reason: { code: 'WORKER_FAILED' } });
    const { job } = placeShard(randomStates(2, 'float32', 3), [], file);
    await expect(pool.update(job)).rejects.toMatchObject({ code: 'WORKER_FAILED' });
  });
});
