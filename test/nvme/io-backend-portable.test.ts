// Goal: without the addon the thread pool does the same through page cache and lock files.
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { describe, expect, it, vi } from 'vitest';

vi.mock('../../tiers/native/binding.js', async (original) => ({
  ...(await original<object>()),
  native: () => undefined,
  nativeStatus: () => ({ kind: 'off', reason: 'this test' }),
}));

const { createIoBackend } = await import('../../tiers/nvme/create-io-backend.js');
const { ThreadPoolBackend } = await import('../../tiers/nvme/thread-pool-backend.js');
const { createSyncIo } = await import('../../tiers/nvme/create-sync-io.js');
const { describeBackend } = await import('./io-backend-suite.js');
const { buffer, failure, pattern, sameBytes, temporaryFolder } = await import('./support.js');

describeBackend('ThreadPoolBackend without the addon', () => new ThreadPoolBackend());

describe('without the addon', () => {
  it('falls back from the ring and says why', async () => {
    const { backend, reason } = createIoBackend({ prefer: 'ring' });
    expect([backend.kind, reason]).toEqual(['thread-pool', 'no native addon: this test']);
    const io = createSyncIo({ depth: 4 });
    expect(io.kind).toBe('blocking');
    expect((await failure(() => createSyncIo({ depth: 4, prefer: 'ring' }))).code).toBe(
      'DEVICE_UNAVAILABLE',
    );
    await backend.dispose();
  });

  it('goes through the page cache, so any offset and length work', async () => {
    const backend = new ThreadPoolBackend();
    const file = await backend.open(join(temporaryFolder(), 'data.bin'));
    expect(file.direct).toBe(false);
    const source = pattern(1000, 1);
    await backend.write(file, 77, source);
    const target = buffer(1000);
    await backend.read(file, 77, target);
    expect(sameBytes(target, source)).toBe(true);
    await backend.dispose();
  });

  it('takes over the lock file of a dead process, and respects that of a live one', async () => {
    const path = join(temporaryFolder(), 'data.bin');
    const dead = spawnSync(process.execPath, ['-e', 'process.stdout.write(String(process.pid))']);
    writeFileSync(`${path}.lock`, `${dead.stdout.toString()} token\n`);
    const backend = new ThreadPoolBackend();
    const file = await backend.open(path);
    expect(readFileSync(`${path}.lock`, 'utf8')).toMatch(new RegExp(`^${process.pid} `));
    await backend.close(file);
    expect(existsSync(`${path}.lock`)).toBe(false);
    writeFileSync(`${path}.lock`, `${process.ppid} token\n`);
    expect((await failure(() => backend.open(path))).code).toBe('STORE_LOCKED');
    expect(readFileSync(`${path}.lock`, 'utf8')).toBe(`${process.ppid} token\n`);
    await backend.dispose();
  });
});
