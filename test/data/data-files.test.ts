// Goal: a folder is its *.jsonl files in one order; what is missing or empty is named.
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { findDataFiles } from '../../src/data/data-files.js';
import { failureOf } from './temporary-files.js';

const root = mkdtempSync(join(tmpdir(), 'spillway-files-'));
afterAll(() => {
  rmSync(root, { recursive: true });
});

/** A folder with files of the given names, each with its name as content. */
function folder(name: string, ...files: string[]): string {
  const path = join(root, name);
  mkdirSync(path, { recursive: true });
  for (const file of files) {
    mkdirSync(join(path, file, '..'), { recursive: true });
    writeFileSync(join(path, file), file);
  }
  return path;
}

it('takes a folder for its *.jsonl files at any depth, sorted by path', async () => {
  const path = folder(
    'tree',
    'b.jsonl',
    'a/z.jsonl',
    'a/a.jsonl',
    'B.jsonl',
    'notes.txt',
    'c.json',
    '.hidden.jsonl',
    '.git/x.jsonl',
    'd.jsonl/e.jsonl',
  );
  const found = await findDataFiles([path], 'data_files');
  const names = ['B.jsonl', 'a/a.jsonl', 'a/z.jsonl', 'b.jsonl', 'd.jsonl/e.jsonl'];
  expect(found).toEqual(
    names.map((name) => ({ path: join(path, name), bytes: name.length, regular: true })),
  );
});

it('keeps the order of what is named, whatever its name, twice if named twice', async () => {
  const path = folder('named', 'z.txt', 'sub/a.jsonl');
  const file = join(path, 'z.txt');
  const found = await findDataFiles([file, path, file], 'data_files');
  expect(found.map((entry) => entry.path)).toEqual([file, join(path, 'sub/a.jsonl'), file]);
});

it('follows links to files, as in the cache of a hub, but enters no cycle', async () => {
  const path = folder('links', 'blobs/0123');
  symlinkSync('blobs/0123', join(path, 'data.jsonl'));
  symlinkSync('..', join(path, 'blobs/up'));
  symlinkSync('.', join(path, 'loop.jsonl'));
  const found = await findDataFiles([path], 'data_files');
  expect(found).toEqual([{ path: join(path, 'data.jsonl'), bytes: 10, regular: true }]);
});

it('knows a pipe from a file', async () => {
  const pipe = join(folder('pipes'), 'pipe');
  execFileSync('mkfifo', [pipe]);
  const [found] = await findDataFiles([pipe], 'data_files');
  expect(found).toMatchObject({ path: pipe, regular: false });
});

it('refuses what is neither file, folder nor pipe', async () => {
  const error = await failureOf(() => findDataFiles(['/dev/zero'], 'eval_files'));
  expect(error.code).toBe('DATA_NOT_FOUND');
  expect(error.message).toBe(
    '"/dev/zero" is neither a file, a folder nor a pipe; check eval_files',
  );
});

it('names what is missing, an empty folder and a link to nothing, with the key', async () => {
  const missing = await failureOf(() => findDataFiles(['/no/such.jsonl'], 'eval_files'));
  expect(missing.code).toBe('DATA_NOT_FOUND');
  expect(missing.message).toContain('"/no/such.jsonl"; check eval_files');
  const empty = folder('empty', 'readme.md');
  const error = await failureOf(() => findDataFiles([empty], 'data_files'));
  expect(error.code).toBe('DATA_NOT_FOUND');
  expect(error.message).toContain(`"${empty}" holds no *.jsonl file; check data_files`);
  const dangling = folder('dangling');
  symlinkSync('nothing', join(dangling, 'x.jsonl'));
  expect((await failureOf(() => findDataFiles([dangling], 'data_files'))).message).toContain(
    'x.jsonl',
  );
});
