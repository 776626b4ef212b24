// Goal: the pool's threads give the kernel's bits wherever states live, and its life has an end.
import { getEventListeners } from 'node:events';
import { constants, readdirSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';

import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';

import { CHUNK_ELEMENTS, type ComputeDtype, type StateName } from '../../core/types.js';
import { OptimizerPool, type OptimizerPoolOptions } from '../../src/optim/optimizer-pool.js';
import { stagingBytes, type StagingShape } from '../../src/optim/staging.js';
import { HostPool } from '../../tiers/host/host-pool.js';
import { native } from '../../tiers/native/binding.js';
import {
  CountingArena,
  differences,
  expectedStates,
  placeShard,
  randomStates,
  StateFile,
  stateNames,
} from './shards.js';

const SHAPE: StagingShape = { dtype: 'bfloat16', nvmeStates: stateNames('bfloat16'), depth: 3 };
const hasRing = native()?.ringProbe() === 0;

let file: StateFile;
let pool: OptimizerPool | undefined;
beforeAll(() => {
  file = new StateFile();
});
afterEach(async () => {
  await pool?.close();
  pool = undefined;
});
afterAll(() => file.dispose());

async function start(options: Partial<OptimizerPoolOptions> = {}): Promise<OptimizerPool> {
  const arena = new CountingArena();
  pool = await OptimizerPool.create({ workers: 1, arena, io: 'auto', staging: SHAPE, ...options });
  return pool;
}

describe('OptimizerPool.update', () => {
  const lengths = [1, 4096, CHUNK_ELEMENTS - 1, CHUNK_ELEMENTS, CHUNK_ELEMENTS + 1];
  const allLengths = [...lengths, 3 * CHUNK_ELEMENTS + 77];
  const homes: readonly (readonly StateName[])[] = [
    [],
    ['exp_avg', 'exp_avg_sq'],
    ['param', 'grad'],
    stateNames('bfloat16'),
  ];
  const cases = (['float32', 'bfloat16'] as const).flatMap((dtype: ComputeDtype) =>
    allLengths.map((length, index) => {
      const states = randomStates(length, dtype, 100 + index);
      return { states, expected: expectedStates(states) };
    }),
  );

  it.for([
    { io: 'ring', workers: 1 },
    { io: 'ring', workers: 2 },
    { io: 'blocking', workers: 1 },
    { io: 'blocking', workers: 2 },
  ] as const)(
    'gives the bits of direct kernel calls: $io, workers $workers',
    async ({ io, workers }, context) => {
      if (io === 'ring' && !hasRing) context.skip('no io_uring here');
      const running = await start({ io, workers });
      expect(running.io).toBe(io);
      const placed = cases.flatMap(({ states, expected }) =>
        homes.map((nvme) => ({ expected, shard: placeShard(states, nvme, file) })),
      );
      const results = await Promise.all(placed.map(({ shard }) => running.update(shard.job)));
      for (const { shard, expected } of placed) {
        expect(differences(shard.read(), expected)).toEqual([]);
      }
      expect(results[0]).toEqual({ nvmeReadBytes: 0, nvmeWrittenBytes: 0 });
    },
  );

  it('works past the page cache with staging memory of the host pool', async (context) => {
    let direct: StateFile;
    try {
      direct = new StateFile(constants.O_RDWR | constants.O_DIRECT);
    } catch {
      return context.skip('no O_DIRECT under the temporary folder');
    }
    const staging: StagingShape = {
      ...SHAPE,
      dtype: 'float32',
      maxShardLength: CHUNK_ELEMENTS + 5,
    };
    const arena = HostPool.create({ budgetBytes: stagingBytes({ ...staging, workers: 2 }) });
    const running = await start({ arena, staging, workers: 2 });
    const states = randomStates(CHUNK_ELEMENTS + 5, 'float32', 11);
    const shards = [1, 2, 3].map(() => placeShard(states, stateNames('float32'), direct));
    await Promise.all(shards.map(({ job }) => running.update(job)));
    const expected = expectedStates(states);
    for (const shard of shards) expect(differences(shard.read(), expected)).toEqual([]);
    await running.close();
    expect(arena.liveBytes).toBe(0);
    arena.dispose();
    direct.dispose();
  });
});

describe('OptimizerPool.create', () => {
  it('starts exactly as many threads as asked and leases exactly the planned bytes', async () => {
    const arena = new CountingArena();
    const staging: StagingShape = { dtype: 'float32', nvmeStates: ['exp_avg'], depth: 2 };
    const before = threadCount();
    const running = await start({ arena, staging, workers: 3 });
    expect(running.workers).toBe(3);
    expect(threadCount() - before).toBeGreaterThanOrEqual(3);
    expect(arena.liveBytes).toBe(stagingBytes({ ...staging, workers: 3 }));
    expect(arena.liveBytes).toBe(3 * 2 * 4 * CHUNK_ELEMENTS);
  });

  it('opens no ring and leases nothing when no state may be on NVMe', async () => {
    const arena = new CountingArena();
    const running = await start({ arena, staging: { ...SHAPE, nvmeStates: [] } });
    expect(running.io).toBe('none');
    expect(arena.peakBytes).toBe(0);
    const states = randomStates(100, 'float32', 1);
    const onDisk = placeShard(states, ['exp_avg'], file);
    await expect(running.update(onDisk.job)).rejects.toMatchObject({ code: 'INTERNAL' });
    const inMemory = placeShard(states, [], file);
    await running.update(inMemory.job);
    expect(differences(inMemory.read(), expectedStates(states))).toEqual([]);
  });

  it('passes on that the arena is full, with no lease and no thread left', async () => {
    const slotBytes = stagingBytes({ ...SHAPE, workers: 1 });
    const arena = new CountingArena(2 * slotBytes - 1);
    const failed = start({ arena, workers: 2 });
    await expect(failed).rejects.toMatchObject({ code: 'HOST_OUT_OF_MEMORY' });
    expect(arena.liveBytes).toBe(0);
  });

  it('is WORKER_FAILED, with no lease left, when the threads do not come up', async () => {
    const arena = new CountingArena();
    const workerFile = '/nowhere/adamw-worker.js';
    const failed = start({ arena, workers: 2, workerFile });
    await expect(failed).rejects.toMatchObject({ code: 'WORKER_FAILED' });
    expect(arena.liveBytes).toBe(0);
  });
});

describe('OptimizerPool.close', () => {
  it('gives back every thread, descriptor and lease, and may be called again', async () => {
    const arena = new CountingArena();
    await (await start({ arena, workers: 2 })).close(); // What loads once is loaded now.
    const before = { threads: threadCount(), descriptors: descriptorCount() };
    const running = await start({ arena, workers: 2 });
    const shards = [1, 2, 3].map((seed) =>
      placeShard(randomStates(5000, 'float32', seed), ['param', 'exp_avg'], file),
    );
    await Promise.all(shards.map(({ job }) => running.update(job)));
    await Promise.all([running.close(), running.close()]);
    await running.close();
    expect(arena.liveBytes).toBe(0);
    await settled(() => descriptorCount() <= before.descriptors && threadCount() <= before.threads);
    expect(descriptorCount()).toBe(before.descriptors);
    expect(threadCount()).toBeLessThanOrEqual(before.threads);
  });

  it('cancels what waits and what runs with ENGINE_CLOSED, and refuses what comes later', async () => {
    const running = await start();
    const states = randomStates(4096, 'float32', 7);
    const shards = [1, 2, 3].map(() => placeShard(states, ['exp_avg'], file));
    const updates = shards.map(({ job }) => running.update(job));
    const outcomes = Promise.allSettled(updates);
    await running.close();
    expect((await outcomes).map(codeOf)).toEqual([
      'ENGINE_CLOSED',
      'ENGINE_CLOSED',
      'ENGINE_CLOSED',
    ]);
    for (const shard of shards) expect(differences(shard.read(), states)).toEqual([]);
    await expect(running.update(shards[0]!.job)).rejects.toMatchObject({ code: 'ENGINE_CLOSED' });
  });

  it('loses nothing after drain', async () => {
    const running = await start({ workers: 2 });
    const states = randomStates(CHUNK_ELEMENTS + 3, 'bfloat16', 8);
    const shards = Array.from({ length: 5 }, () => placeShard(states, ['master_lo'], file));
    const updates = Promise.all(shards.map(({ job }) => running.update(job)));
    await running.drain();
    await running.close();
    await updates;
    const expected = expectedStates(states);
    for (const shard of shards) expect(differences(shard.read(), expected)).toEqual([]);
  });
});

describe('AbortSignal', () => {
  it('rejects with its reason whether the update waits or runs, and leaves no listener', async () => {
    const running = await start();
    const states = randomStates(4096, 'float32', 9);
    // Twelve tiles: the worker, which may be at the first when the word comes, sees it long before
    // the last.
    const long = randomStates(12 * CHUNK_ELEMENTS, 'float32', 10);
    const shards = [long, states, states].map((each) => placeShard(each, ['exp_avg'], file));
    const controller = new AbortController();
    const reason = new Error('enough');
    const [first, second, third] = shards.map(({ job }, index) =>
      running.update(job, index < 2 ? controller.signal : undefined),
    );
    controller.abort(reason); // The first runs, the second waits.
    await expect(second).rejects.toBe(reason);
    await expect(first).rejects.toBe(reason);
    await third;
    expect(getEventListeners(controller.signal, 'abort')).toEqual([]);
    expect(differences(shards[0]!.read(), expectedStates(long))).not.toEqual([]);
    expect(differences(shards[1]!.read(), states)).toEqual([]);
    expect(differences(shards[2]!.read(), expectedStates(states))).toEqual([]);
    await expect(running.update(shards[0]!.job, controller.signal)).rejects.toBe(reason);
  });
});

function threadCount(): number {
  return readdirSync('/proc/self/task').length;
}

function descriptorCount(): number {
  return readdirSync('/proc/self/fd').length;
}

/** The system ends threads and closes rings a moment after Node has let go of them. */
async function settled(condition: () => boolean): Promise<void> {
  for (let attempt = 0; attempt < 100 && !condition(); attempt += 1) await sleep(20);
}

function codeOf(outcome: PromiseSettledResult<unknown>): unknown {
  return outcome.status === 'rejected' ? (outcome.reason as { code?: unknown }).code : 'fulfilled';
}
