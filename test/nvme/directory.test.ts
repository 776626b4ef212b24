// Goal: the directory returns its records after reopening, and notices any changed value.
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import * as fc from 'fast-check';
import { open } from 'lmdb';
import { describe, expect, it } from 'vitest';

import { ShardDirectory, directoryRecords } from '../../tiers/nvme/directory.js';
import { createLayout } from '../../tiers/nvme/layout.js';
import { failure, temporaryFolder } from './support.js';

const layout = createLayout({
  states: Array.from({ length: 12 }, (_, index) => ({
    shard: Math.floor(index / 3),
    state: (['param', 'exp_avg', 'exp_avg_sq'] as const)[index % 3]!,
    elementCount: 1000 + index,
    elementType: 'float32' as const,
  })),
  scratch: [],
  fileCount: 2,
  slots: 1,
});
const records = directoryRecords(layout, 7);
const META = { modelFingerprint: 'abc', generation: 7 };

function runFolder(): string {
  const folder = join(temporaryFolder(), 'run');
  mkdirSync(folder);
  return folder;
}

const byKey = (list: readonly { shard: number; state: string }[]) =>
  [...list].sort((a, b) => a.shard - b.shard || a.state.localeCompare(b.state));

/** Changes one stored value behind the directory's back. */
async function mutate(folder: string, key: string, change: (value: Buffer) => Buffer | undefined) {
  const database = open<Buffer, string>({ path: join(folder, 'directory'), encoding: 'binary' });
  const value = change(Buffer.from(database.get(key)!));
  if (value === undefined) await database.remove(key);
  else await database.put(key, value);
  await database.close();
}

async function written(): Promise<string> {
  const folder = runFolder();
  const directory = ShardDirectory.open(folder);
  await directory.replace(records, META);
  await directory.close();
  return folder;
}

/** Everything that a reader would ask for. */
async function readAll(folder: string): Promise<void> {
  const directory = ShardDirectory.open(folder);
  try {
    directory.meta();
    directory.records();
  } finally {
    await directory.close();
  }
}

describe('ShardDirectory', () => {
  it('is empty when new, and returns all records after it was reopened', async () => {
    const folder = runFolder();
    const directory = ShardDirectory.open(folder);
    expect([directory.meta(), directory.records()]).toEqual([undefined, []]);
    await directory.replace(records, META);
    await directory.close();
    await directory.close();
    const again = ShardDirectory.open(folder);
    expect(again.meta()).toEqual({ ...META, layoutVersion: 1, recordCount: 12 });
    expect(byKey(again.records())).toEqual(byKey(records));
    const [first] = layout.states;
    expect(again.records()).toContainEqual({
      shard: 0,
      state: 'param',
      fileIndex: 0,
      offset: first!.slots[0]!.payloadOffset,
      byteLength: 4000,
      slot: 0,
      generation: 7,
    });
    await again.close();
  });

  it('replaces all of an older content', async () => {
    const folder = await written();
    const directory = ShardDirectory.open(folder);
    await directory.replace(records.slice(0, 2), { ...META, generation: 8 });
    expect(directory.records()).toHaveLength(2);
    expect(directory.meta()?.generation).toBe(8);
    await directory.close();
  });

  it('refuses any changed byte of any value as STATE_CORRUPT', async () => {
    const keys = ['meta', ...records.map(({ shard, state }) => `state/${shard}/${state}`)];
    await fc.assert(
      fc.asyncProperty(
        fc.constantFrom(...keys),
        fc.nat(),
        fc.integer({ min: 1, max: 255 }),
        async (key, at, xor) => {
          const folder = await written();
          await mutate(folder, key, (value) => {
            value[at % value.length]! ^= xor;
            return value;
          });
          const error = await failure(() => readAll(folder));
          expect([error.code, error.facts['key']]).toEqual(['STATE_CORRUPT', key]);
        },
      ),
      { numRuns: 15 },
    );
  });

  it('refuses a missing record, a truncated value and a value under the key of another', async () => {
    const missing = await written();
    await mutate(missing, 'state/1/exp_avg', () => undefined);
    expect((await failure(() => readAll(missing))).message).toContain('11 found');
    const short = await written();
    await mutate(short, 'state/1/exp_avg', (value) => value.subarray(0, 3));
    expect((await failure(() => readAll(short))).code).toBe('STATE_CORRUPT');
    const moved = await written();
    let other: Buffer = Buffer.alloc(0);
    await mutate(moved, 'state/2/param', (value) => (other = value));
    await mutate(moved, 'state/1/param', () => other);
    expect((await failure(() => readAll(moved))).message).toContain('another key');
  });
});
