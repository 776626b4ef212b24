// Goal: ring, thread pool and simulated disk do the same, by one shared test body.
import { describe, expect, it } from 'vitest';

import { createIoBackend, ringUnavailableReason } from '../../tiers/nvme/create-io-backend.js';
import { RingBackend } from '../../tiers/nvme/ring-backend.js';
import { SimulatedBackend } from '../../tiers/nvme/simulated-backend.js';
import { ThreadPoolBackend } from '../../tiers/nvme/thread-pool-backend.js';
import { describeBackend } from './io-backend-suite.js';

const noRing = ringUnavailableReason();
if (noRing === undefined) {
  describeBackend('RingBackend', () => new RingBackend());
  describeBackend('RingBackend of depth 1', () => new RingBackend({ depth: 1 }));
} else {
  it.skip(`RingBackend: ${noRing}`, () => undefined);
}
describeBackend('ThreadPoolBackend', () => new ThreadPoolBackend());
describeBackend('SimulatedBackend without faults', () => new SimulatedBackend());

describe('createIoBackend', () => {
  it('takes the ring where there is one and otherwise says why not', async () => {
    const { backend, reason } = createIoBackend();
    expect(backend.kind).toBe(noRing === undefined ? 'ring' : 'thread-pool');
    expect(reason).toBe(noRing);
    await backend.dispose();
  });

  it('takes the thread pool when asked to', async () => {
    const { backend, reason } = createIoBackend({ prefer: 'thread-pool' });
    expect(backend.kind).toBe('thread-pool');
    expect(reason).toBe('thread-pool was asked for');
    await backend.dispose();
  });
});
