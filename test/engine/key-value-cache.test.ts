// Goal: an error in writing to the cache leaves only when nothing is on its way into it any more.
import * as tf from '@tensorflow/tfjs-core';
import { expect, it } from 'vitest';
import { KeyValueCache } from '../../src/engine/key-value-cache.js';
import { createDevice } from '../../tiers/device/create-device.js';
import { HostPool } from '../../tiers/host/host-pool.js';
import { TierManager, type Turns } from '../../tiers/tier-manager.js';

const [LIMIT, WIDTH] = [4, 8];

it('ends every download of a block before one’s failure leaves', async () => {
  const device = await createDevice('cpu', { budgetBytes: 2 ** 20 });
  const host = HostPool.create({ budgetBytes: 2 ** 24 });
  const buffers = { stagingCount: 1, spillStagingCount: 1 };
  const tiers = new TierManager({ device, host, volume: undefined, ...buffers });
  const cache = new KeyValueCache(tiers, ['host'], [[WIDTH, WIDTH]], LIMIT);
  const rows = [tf.ones([1, WIDTH]), tf.ones([1, WIDTH])];
  const failure = new Error('the first link broke');
  let begun = 0;
  let isOpen = false;
  const turns: Turns = {
    async take(_link, _bytes, body) {
      begun += 1;
      if (begun === 1) throw failure;
      isOpen = true;
      await new Promise((resolve) => setTimeout(resolve, 20));
      const moved = await body();
      isOpen = false;
      return moved;
    },
  };
  try {
    await expect(cache.write(0, 0, rows, turns)).rejects.toBe(failure);
    expect(begun).toBe(2);
    expect(isOpen).toBe(false);
  } finally {
    tf.dispose(rows);
    cache.dispose();
    await device.dispose();
    host.dispose();
  }
});
