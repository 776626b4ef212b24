// Goal: staging buffers are lent whole requests at a time, in order, and all come back.
import { expect, it } from 'vitest';
import { HostPool } from '../../tiers/host/host-pool.js';
import { STAGING_BUFFER_BYTES, StagingPool } from '../../tiers/host/staging-pool.js';

const arena = (count: number): HostPool =>
  HostPool.create({ budgetBytes: count * STAGING_BUFFER_BYTES });

it('serves waiters in order, and a later small request does not overtake a large one', async () => {
  const pool = new StagingPool(arena(4), 4);
  const first = await pool.acquire(3);
  const served: string[] = [];
  const large = pool.acquire(2).then((loan) => (served.push('large'), loan));
  const small = pool.acquire(1).then((loan) => (served.push('small'), loan));
  expect(pool.tryAcquire(1)).toBeUndefined();
  first.release();
  first.release();
  const loans = [await large, await small];
  expect(served).toEqual(['large', 'small']);
  expect(new Set(loans.flatMap((loan) => loan.buffers)).size).toBe(3);
  for (const loan of loans) loan.release();
  expect(pool.freeCount).toBe(4);
  pool.dispose();
});

it('refuses who waits when it is disposed, and gives its memory back', async () => {
  const host = arena(3);
  const pool = new StagingPool(host, 3);
  const loan = await pool.acquire(3);
  const waiting = pool.acquire(1);
  loan.release();
  (await waiting).release();
  await pool.acquire(3);
  const refused = pool.acquire(1);
  pool.dispose();
  pool.dispose();
  await expect(refused).rejects.toMatchObject({ code: 'ENGINE_CLOSED' });
  expect(() => pool.tryAcquire(1)).toThrow();
  expect(host.liveBytes).toBe(0);
});

it('leases nothing when the arena has no room for all buffers', () => {
  const host = arena(3);
  expect(() => new StagingPool(host, 4)).toThrow(/host tier/);
  expect(host.liveBytes).toBe(0);
});
