// Goal: a process that dies at any file operation leaves every checkpoint whole, and no mixture.
import { cp, mkdir, readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';

import { beforeEach, describe, expect, it, vi } from 'vitest';

import { isCoded } from '../../core/errors.js';
import { listCheckpoints } from '../../src/checkpoint/list-checkpoints.js';
import { removeCheckpoint } from '../../src/checkpoint/remove-checkpoint.js';
import { saveModelFolder } from '../../src/checkpoint/save-model.js';
import type { CrashingFileSystem } from './crashing-file-system.js';
import { temporaryFolder } from './temporary-folder.js';
import { checkpointVersions, versionOf, versionedSave, type SaveShape } from './versioned-save.js';

const { files } = vi.hoisted(() => ({ files: {} as { system: CrashingFileSystem } }));

vi.mock('node:fs/promises', async (importOriginal) => {
  const real = await importOriginal<typeof import('node:fs/promises')>();
  const { CrashingFileSystem } = await import('./crashing-file-system.js');
  files.system = new CrashingFileSystem();
  return files.system.wrap(real);
});

const root = temporaryFolder('memory');
const before = join(root, 'before');
const work = join(root, 'work');

const SINGLE: SaveShape = { sharded: false, optimizer: true };
const SHARDED: SaveShape = { sharded: true, optimizer: true };
const BARE: SaveShape = { sharded: false, optimizer: false };

/** Puts the state of `before` into `work`. */
async function reset(): Promise<void> {
  await rm(work, { recursive: true, force: true });
  await cp(before, work, { recursive: true });
}

/** Dies at each operation of `process` in turn and calls `check`; the operations, at the end. */
async function dieEverywhere(
  process: () => Promise<unknown>,
  check: (at: number) => Promise<void>,
): Promise<number> {
  for (let at = 0; ; at += 1) {
    await reset();
    const died = await files.system.run(at, process);
    await check(at);
    if (!died) return at;
  }
}

/** Names in `work` that no finished operation leaves. */
async function leftovers(): Promise<string[]> {
  return (await readdir(work, { recursive: true })).filter((name) => /(^|\/)\./.test(name));
}

beforeEach(async () => {
  await rm(before, { recursive: true, force: true });
  await mkdir(before);
});

describe('a crash at every file operation', () => {
  it('of a new checkpoint leaves the previous one, and the new one only whole', async () => {
    await saveModelFolder(versionedSave(join(before, 'checkpoint-1'), 'replace', 1, SINGLE));
    const save = (): Promise<void> =>
      saveModelFolder(versionedSave(join(work, 'checkpoint-2'), 'replace', 2, SHARDED));
    const seen = new Set<number>();
    const count = await dieEverywhere(save, async () => {
      const versions = await checkpointVersions(work);
      expect(versions.get(1)).toBe(1);
      expect(versions.get(2) ?? 2).toBe(2);
      seen.add(versions.size);
      const listed = await listCheckpoints(work);
      expect(listed.map(({ step }) => step)).toEqual([...versions.keys()].sort());
      expect(await leftovers()).toEqual([]);
      await save();
      expect([...(await checkpointVersions(work))].sort()).toEqual([
        [1, 1],
        [2, 2],
      ]);
    });
    expect(count).toBeGreaterThan(50);
    expect([...seen].sort()).toEqual([1, 2]);
  });

  it('of a replacement leaves the older or the newer one, the former after a repair', async () => {
    await saveModelFolder(versionedSave(join(before, 'checkpoint-1'), 'replace', 1, SHARDED));
    const save = (): Promise<void> =>
      saveModelFolder(versionedSave(join(work, 'checkpoint-1'), 'replace', 2, SINGLE));
    const seen = new Set<number | undefined>();
    await dieEverywhere(save, async (at) => {
      const version = (await checkpointVersions(work)).get(1);
      seen.add(version);
      if (at % 2 === 0) {
        await listCheckpoints(work);
        expect(await versionOf(join(work, 'checkpoint-1'))).toBe(version ?? 1);
      }
      await save();
      expect(await versionOf(join(work, 'checkpoint-1'))).toBe(2);
      expect(await leftovers()).toEqual([]);
    });
    expect([...seen].sort()).toEqual([1, 2, undefined]);
  });

  it('of a removal leaves the checkpoint whole or gone', async () => {
    for (const step of [1, 2]) {
      const folder = join(before, `checkpoint-${step}`);
      await saveModelFolder(versionedSave(folder, 'replace', step, SHARDED));
    }
    await cp(join(before, 'checkpoint-1'), join(before, '.old-checkpoint-1'), { recursive: true });
    const remove = (): Promise<void> => removeCheckpoint(join(work, 'checkpoint-1'));
    const seen = new Set<number>();
    await dieEverywhere(remove, async () => {
      const versions = await checkpointVersions(work);
      expect(versions.get(2)).toBe(2);
      seen.add(versions.size);
      await listCheckpoints(work);
      expect(await checkpointVersions(work)).toEqual(versions);
      expect(await leftovers()).toEqual([]);
    });
    expect([...seen].sort()).toEqual([1, 2]);
  });

  const pairs = [
    ['one file by shards', SINGLE, SHARDED],
    ['shards by one file', SHARDED, SINGLE],
    ['one file by another, without states', SINGLE, BARE],
  ] as const;

  it.each(pairs)('of a final save that replaces %s', async (_, older, newer) => {
    await saveModelFolder(versionedSave(before, 'into', 1, older));
    const save = (): Promise<void> => saveModelFolder(versionedSave(work, 'into', 2, newer));
    const seen = new Set<number | string>();
    await dieEverywhere(save, async (at) => {
      const version = await versionOf(work).catch((error: unknown) => {
        if (!isCoded(error) || error.code !== 'MODEL_NOT_FOUND') throw error;
        expect(error.message).toContain('a save was interrupted: move what is in');
        return error.code;
      });
      seen.add(version);
      // The repair may die as well, anywhere; the next one has the same end.
      await files.system.run(at % 7, () => listCheckpoints(work));
      await listCheckpoints(work);
      expect(version === 1 ? [1, 2] : [2]).toContain(await versionOf(work));
      await save();
      expect(await versionOf(work)).toBe(2);
      expect(await leftovers()).toEqual([]);
    });
    expect([...seen].sort()).toEqual([1, 2, 'MODEL_NOT_FOUND']);
  });
});
