// Goal: pieces of transfers take turns on a link, the lowest operation first, no faster than a
// throttle allows and not much slower.
import { describe, expect, it, vi } from 'vitest';
import type { Link } from '../../core/types.js';
import { LinkTurns } from '../../src/engine/link-turns.js';

const settle = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

/** Runs `body` and says how many milliseconds it took. */
async function msOf(body: () => Promise<unknown>): Promise<number> {
  const start = performance.now();
  await body();
  return performance.now() - start;
}

const nothing = (): Promise<void> => Promise.resolve();

describe('LinkTurns', () => {
  it('moves two pieces to the device at a time, then the lowest operation that waits', async () => {
    const turns = new LinkTurns();
    const begun: number[] = [];
    const ends: (() => void)[] = [];
    for (const operation of [8, 6, 4, 7, 2]) {
      void turns.of(operation).take('upload', 1, () => {
        begun.push(operation);
        return new Promise<void>((end) => ends.push(end));
      });
    }
    await settle();
    expect(begun).toEqual([8, 6]);
    for (let next = 0; next < 5; next += 1) {
      ends[next]!();
      await settle();
    }
    expect(begun).toEqual([8, 6, 2, 4, 7]);
  });

  it('keeps the links apart', async () => {
    const turns = new LinkTurns();
    const begun: Link[] = [];
    const links = ['upload', 'upload', 'upload', 'download', 'nvme_read', 'nvme_write'] as const;
    for (const link of links) {
      void turns.of(1).take(link, 1, () => {
        begun.push(link);
        return new Promise<void>(() => undefined);
      });
    }
    await settle();
    expect(begun).toEqual(['upload', 'upload', 'download', 'nvme_read', 'nvme_write']);
  });

  it('tells of each piece: operation, link, bytes and when', async () => {
    const pieces: unknown[] = [];
    const turns = new LinkTurns({}, (operation, link, bytes, start, end) => {
      expect(end).toBeGreaterThanOrEqual(start);
      pieces.push([operation, link, bytes]);
    });
    const moved: unknown[] = [];
    const one = turns.of(5, (link, bytes) => moved.push([link, bytes]));
    expect(await one.take('download', 12, () => Promise.resolve('result'))).toBe('result');
    expect(pieces).toEqual([[5, 'download', 12]]);
    expect(moved).toEqual([['download', 12]]);
  });

  it('counts what the host does between pieces, and neither turns nor pieces', async () => {
    let now = 0;
    const clock = vi.spyOn(performance, 'now').mockImplementation(() => now);
    try {
      const one = new LinkTurns().of(1);
      const piece = (): Promise<void> =>
        one.take('download', 1, () => {
          now += 100;
          return Promise.resolve();
        });
      now += 1; // Before the first piece.
      await piece();
      expect(one.hostMs()).toBe(0);
      now += 10;
      await Promise.all([piece(), piece(), piece()]);
      expect(one.hostMs()).toBe(10);
      now += 20; // After the last one.
      expect(one.hostMs()).toBe(30);
    } finally {
      clock.mockRestore();
    }
  });

  it('gives the turn back when a piece fails, and passes the error on', async () => {
    const turns = new LinkTurns();
    const one = turns.of(1);
    for (let failure = 0; failure < 3; failure += 1) {
      await expect(one.take('upload', 1, () => Promise.reject(new Error('lost')))).rejects.toThrow(
        'lost',
      );
    }
    await one.take('upload', 1, nothing);
  });

  it.each(['upload', 'download', 'nvme_read', 'nvme_write'] as const)(
    'carries what a throttled %s link carries, whatever the pieces',
    async (link) => {
      // 40 kB at 1 MB/s.
      const turns = new LinkTurns({ [link]: 1e6 });
      const pieces = [1000, 9000, 500, 15_500, 14_000];
      const ms = await msOf(() =>
        Promise.all(
          pieces.map((bytes, operation) => turns.of(operation).take(link, bytes, nothing)),
        ),
      );
      expect(ms).toBeGreaterThanOrEqual(40);
      // A busy machine may be late.
      expect(ms).toBeLessThan(2000);
    },
  );

  it('is no faster after a rest than the throttle says', async () => {
    const turns = new LinkTurns({ upload: 1e6 });
    await turns.of(0).take('upload', 5000, nothing);
    await new Promise((resolve) => setTimeout(resolve, 20));
    expect(await msOf(() => turns.of(1).take('upload', 10_000, nothing))).toBeGreaterThanOrEqual(
      10,
    );
  });

  it('does not wait on the links that have no throttle', async () => {
    const turns = new LinkTurns({ upload: 1 });
    await turns.of(0).take('download', 1e9, nothing);
    await turns.occupy(0, 'nvme_read', 1e12);
  });

  it('counts what others move, and lets a lower operation in between', async () => {
    const turns = new LinkTurns({ nvme_read: 2 ** 20 / 0.005 });
    const order: string[] = [];
    const start = performance.now();
    // Twenty pieces of 5 ms each, of which the link has taken on eight.
    const background = turns.occupy(9, 'nvme_read', 20 * 2 ** 20).then(() => order.push('update'));
    await settle();
    const fetched = turns
      .of(1)
      .take('nvme_read', 2 ** 20, nothing)
      .then(() => order.push('fetch'));
    await Promise.all([background, fetched]);
    expect(order).toEqual(['fetch', 'update']);
    expect(performance.now() - start).toBeGreaterThanOrEqual(21 * 5);
  });
});
