// Goal: an output folder lists whole checkpoints only, and what a killed run left is put right.
import { existsSync, mkdirSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

import { describe, expect, it } from 'vitest';

import { listCheckpoints } from '../../src/checkpoint/list-checkpoints.js';
import { removeCheckpoint } from '../../src/checkpoint/remove-checkpoint.js';
import { temporaryFolder } from './temporary-folder.js';

const root = temporaryFolder();
let folderCount = 0;

/** A new folder with these files; a path ends its folders' names with slashes. */
function make(files: Readonly<Record<string, string>>): string {
  const folder = join(root, String(folderCount++));
  mkdirSync(folder);
  for (const [path, content] of Object.entries(files)) {
    mkdirSync(join(folder, path, '..'), { recursive: true });
    writeFileSync(join(folder, path), content);
  }
  return folder;
}

describe('listCheckpoints', () => {
  it('sorts by step, whatever else is there, and gives none of a missing folder', async () => {
    const folder = make({
      'checkpoint-1000/f': '',
      'checkpoint-20/f': '',
      'checkpoint-x/f': '',
      'checkpoint-5': 'a file',
      'my-checkpoint-7/f': '',
      'config.json': '{}',
    });
    expect(await listCheckpoints(folder)).toEqual([
      { step: 20, folder: join(folder, 'checkpoint-20') },
      { step: 1000, folder: join(folder, 'checkpoint-1000') },
    ]);
    expect(await listCheckpoints(join(folder, 'none'))).toEqual([]);
  });

  it('brings back the older folder of a replacement that was killed, and removes half ones', async () => {
    const folder = make({
      '.old-checkpoint-1/f': 'older',
      '.old-checkpoint-2/f': 'older',
      'checkpoint-2/f': 'newer',
      '.tmp-checkpoint-1/f': 'half',
      '.tmp-checkpoint-3/f': 'half',
      '.tmp-summary.json': 'not ours',
      '.old-notes/f': 'not ours',
    });
    const found = await listCheckpoints(folder);
    expect(found.map(({ step }) => step)).toEqual([1, 2]);
    expect(readFileSync(join(folder, 'checkpoint-1', 'f'), 'utf8')).toBe('older');
    expect(readFileSync(join(folder, 'checkpoint-2', 'f'), 'utf8')).toBe('newer');
    expect(readdirSync(folder).sort()).toEqual([
      '.old-notes',
      '.tmp-summary.json',
      'checkpoint-1',
      'checkpoint-2',
    ]);
  });

  it.each(['.save-ready', '.save-moving'])('completes a final save found as %s', async (name) => {
    const folder = make({
      [`${name}/config.json`]: 'new',
      [`${name}/model.safetensors`]: 'new',
      ...(name === '.save-ready' ? { 'config.json': 'old' } : {}),
      'metrics.jsonl': '{}',
    });
    expect(await listCheckpoints(folder)).toEqual([]);
    expect(readdirSync(folder).sort()).toEqual([
      'config.json',
      'metrics.jsonl',
      'model.safetensors',
    ]);
    expect(readFileSync(join(folder, 'config.json'), 'utf8')).toBe('new');
  });

  it('refuses a file in place of the folder', async () => {
    const folder = make({ f: '' });
    await expect(listCheckpoints(join(folder, 'f'))).rejects.toMatchObject({
      code: 'MODEL_NOT_FOUND',
    });
  });
});

describe('removeCheckpoint', () => {
  it('removes the folder, what stands aside for it and an earlier half removal', async () => {
    const folder = make({
      'checkpoint-1/f': '',
      '.old-checkpoint-1/f': '',
      '.tmp-checkpoint-1/f': '',
      'checkpoint-2/f': '',
    });
    await removeCheckpoint(`${join(folder, 'checkpoint-1')}/`);
    expect(readdirSync(folder)).toEqual(['checkpoint-2']);
  });

  it('says so when there is no such folder', async () => {
    const folder = make({});
    await expect(removeCheckpoint(join(folder, 'checkpoint-1'))).rejects.toMatchObject({
      code: 'PATH_UNWRITABLE',
    });
    expect(existsSync(join(folder, '.tmp-checkpoint-1'))).toBe(false);
  });
});
