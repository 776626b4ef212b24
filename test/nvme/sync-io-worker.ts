/** @file Worker of sync-io.test.ts: writes and reads back, then leaves requests in flight. */
import { parentPort, workerData } from 'node:worker_threads';

import { createSyncIo } from '../../tiers/nvme/create-sync-io.js';

const { fd, source, target, prefer } = workerData as {
  fd: number;
  source: Uint8Array<SharedArrayBuffer>;
  target: Uint8Array<SharedArrayBuffer>;
  prefer: 'ring' | 'blocking';
};
const io = createSyncIo({ depth: 4, prefer });
io.wait(io.write(fd, 0, source));
io.wait(io.read(fd, 0, target));
const counts = [io.bytesRead, io.bytesWritten];
io.read(fd, 0, target);
parentPort?.postMessage(counts);
