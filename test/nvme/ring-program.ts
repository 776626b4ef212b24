/** @file Program and worker of ring.test.ts: starts requests and ends in the way asked for. */
import { join } from 'node:path';
import { isMainThread, parentPort } from 'node:worker_threads';

import { createSlab } from '../../tiers/host/slab.js';
import { RingBackend } from '../../tiers/nvme/ring-backend.js';

const [ending, folder] = process.argv.slice(2);
const MIB = 2 ** 20;
const COUNT = 24;

const buffer = () => createSlab(MIB, { hugePages: false }).bytes;
const backend = new RingBackend({ depth: 8 });
const file = await backend.open(join(folder!, 'data.bin'));
await backend.reserve(file, COUNT * MIB);

if (ending === 'collect') await collect();
else if (ending !== 'idle') startMany();

/** Requests whose buffers and promises nobody else holds. */
function startMany(): void {
  for (let index = 0; index < COUNT; index += 1) {
    backend.write(file, index * MIB, buffer()).catch(() => undefined);
  }
  queueMicrotask(() => {
    if (!isMainThread) parentPort?.postMessage('started');
    if (ending === 'exit') process.exit(0);
    if (ending === 'throw') {
      process.on('uncaughtException', () => process.exit(7));
      throw new Error('on purpose');
    }
  });
}

async function collect(): Promise<void> {
  let collected = 0;
  const registry = new FinalizationRegistry(() => (collected += 1));
  const write = (index: number): Promise<void> => {
    const bytes = buffer().fill(index);
    registry.register(bytes, index);
    return backend.write(file, index * MIB, bytes);
  };
  const writes = Array.from({ length: COUNT }, (_, index) => write(index));
  globalThis.gc?.();
  await Promise.all(writes);
  let intact = true;
  const target = buffer();
  for (let index = 0; index < COUNT; index += 1) {
    await backend.read(file, index * MIB, target);
    intact &&= target.every((value) => value === index);
  }
  for (let round = 0; round < 20 && collected < COUNT; round += 1) {
    globalThis.gc?.();
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  await backend.dispose();
  process.stdout.write(JSON.stringify({ intact, collected }));
}
